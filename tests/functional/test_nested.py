"""Archives inside of archives: depth, budgets; and what a refusal says of an archive."""

import os
import re
import signal
import struct
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

import pytest

from s3unzip.model import (
    Budget,
    NestedRun,
    OnConflict,
    Options,
    Report,
    TaskKind,
    TaskReport,
    Verdict,
    decode,
)
from s3unzip.settling.loop import begin_run
from s3unzip.settling.nested import nested_requests
from s3unzip.zip import Policy
from tests.support import memory_server, processes, servers
from tests.support.memory import World
from tests.support.zips import DEFLATE, STORED, Entry, Shape, build, seal_aes

ONE = Options(nested_depth=1)


def wrap(levels: int) -> bytes:
    """Return archives in archives: level0.txt beside inner.zip beside ..."""
    raw = build(Entry(f"level{levels}.txt", b"the innermost"))
    for level in reversed(range(levels)):
        raw = build(Entry(f"level{level}.txt", b"text"), Entry("inner.zip", raw, DEFLATE))
    return raw


class Tree:
    """A run and the runs below it."""

    def __init__(self, archive: bytes, options: Options, world: World | None = None) -> None:
        self.world = world or World()
        self.report = self.world.run_request(self.world.request(archive, options))
        self.nested = list(self.world.machine.run_nested(self.report))

    @property
    def keys(self) -> set[str]:
        return set(self.world.contents())

    @property
    def reasons(self) -> dict[str, str | None]:
        return {one.key: one.reason for one in self.nested}


@pytest.mark.parametrize("depth", [0, 1, 2, 3])
def test_depth(depth: int) -> None:
    """Archives are opened so many levels deep, below their own names; no deeper one is opened."""
    tree = Tree(wrap(4), Options(nested_depth=depth))
    assert [run.verdict for run in tree.nested] == [Verdict.COMPLETED] * depth
    assert tree.keys == {
        "inner/" * level + name
        for level in range(depth + 1)
        for name in (f"level{level}.txt", "inner.zip")
    }


def test_each_is_a_run_of_its_own() -> None:
    """A nested run has its own record and report, and the run above lists it."""
    tree = Tree(wrap(1), ONE)
    work = tree.world.buckets.run_store(tree.report.run)
    (nested,) = (decode(line, NestedRun) for line in work.read("nested.jsonl").splitlines())
    assert [nested] == tree.nested
    report = decode(tree.world.buckets.run_store(str(nested.run)).read("report.json"), Report)
    assert (report.verdict, report.source.key) == (Verdict.COMPLETED, "archive/inner.zip")
    assert report.pin == tree.world.out.tail(report.source, 0).pin


@pytest.mark.parametrize(
    ("method", "path", "aborted"),
    [("GET", "/1/2.zip", None), ("PUT", "/3/m.txt", "3"), ("PUT", "/1/2/m.txt", "2")],
)
def test_a_stopped_command_is_resumed_with_the_archives_inside(
    program: processes.Program,
    s3: memory_server.MemoryS3,
    method: str,
    path: str,
    aborted: str | None,
) -> None:
    """Ctrl-C and `abort` stop an inner archive; `resume` of the outer run extracts what is inside.

    `abort` of the outer run stops the inner archive at work, which `aborted` names, and the inner
    archives that have not begun. If `aborted` is None, Ctrl-C is pressed.
    """
    inner = build(Entry("m.txt", b"inner"))
    program.add("a.zip", Entry("1.zip", build(Entry("2.zip", inner))), Entry("3.zip", inner))
    program.variables["AWS_ENDPOINT_URL"] = s3.url
    aborts: list[Future[processes.Ended]] = []

    def interrupt(asked: servers.Asked) -> None:
        if asked.method != method or not asked.path.endswith(path):
            return
        s3.spoil = lambda _: None
        if aborted is None:
            os.kill(os.getpid(), signal.SIGINT)
            return
        (outer,) = (run for run in program.runs() if "-a-" in run)
        aborts.append(pool.submit(program.start, "abort", outer))
        stops = f"runs/*/*-{aborted}-*/stop.json"
        assert any(any(program.home.glob(stops)) for _ in servers.looks())

    s3.spoil = interrupt
    with ThreadPoolExecutor() as pool:
        ended = program.extract("a.zip", "s3://out", "--nested", "2").ends(130).hides("a/1/2.zip")
    for abort in aborts:
        assert ": stopped; 0 " in abort.result().out
    program.run("runs", "--prune", "0").ends(0)
    program.run("resume", "latest", "-w", "1").ends(0, "nested COMPLETED  a/1/2.zip")
    assert {key for key in s3.buckets["out"].objects if key.endswith("m.txt")} == {
        "a/1/2/m.txt",
        "a/3/m.txt",
    }
    (command,) = re.findall("continue with: s3unzip (resume .*-a-.*)", ended.err)
    program.run(*command.split()).ends(0, "nothing is left to do")


def test_inner_archives_that_cannot_be_opened() -> None:
    """What is only called so stays a member, which is no failure; a broken archive is one.

    So is an archive that was cut off, even if only its last byte is missing.
    """
    names = {
        "a.zip": b"no archive",
        "b.ZIP": wrap(0),
        "c.zip": wrap(0) + b"trailing",
        "d.zip": wrap(0)[:-40],
        "e.zip": wrap(0)[:-1],
        "f.zip": b"",
    }
    tree = Tree(build(*(Entry(name, data) for name, data in names.items())), ONE)
    assert [(run.key, run.reason, run.is_failure) for run in tree.nested] == [
        ("archive/a.zip", "no-eocd", False),
        ("archive/b.ZIP", None, False),
        ("archive/c.zip", "trailing-data", True),
        ("archive/d.zip", "no-eocd", True),
        ("archive/e.zip", "no-eocd", True),
        ("archive/f.zip", "no-eocd", False),
    ]
    assert tree.nested[2].verdict is Verdict.REJECTED
    assert tree.keys == {*names, "b/level0.txt"}


@pytest.mark.parametrize(
    ("member", "reason", "content"),
    [
        (Entry("inner/level0.txt", b"mine"), "nested-prefix-taken", b"mine"),
        (Entry("inner/level0.txt", b"x" * 12, flags=1), None, b"the innermost"),
    ],
    ids=["written", "refused"],
)
def test_members_are_not_written_over(member: Entry, reason: str | None, content: bytes) -> None:
    """A nested archive is not opened if members of the outer archive are below its prefix.

    A member that the plan refuses is never written, so it takes no prefix from a nested archive.
    """
    tree = Tree(build(Entry("inner.zip", wrap(0)), member), ONE)
    assert tree.reasons == {"archive/inner.zip": reason}
    assert tree.world.contents()["inner/level0.txt"] == content


@pytest.mark.parametrize(
    ("names", "reasons"),
    [
        (["i.zip", "i.ZIP"], ["nested-prefix-taken", "nested-prefix-taken"]),
        (["m/.zip", "m.zip.zip", "m.zip"], ["nested-no-stem", *["nested-prefix-taken"] * 2]),
    ],
)
def test_archives_for_one_prefix_or_none(names: list[str], reasons: list[str]) -> None:
    """Each is a result with a reason, and the others are extracted."""
    tree = Tree(build(*(Entry(name, wrap(0)) for name in [*names, "z.zip"])), ONE)
    assert [tree.reasons[f"archive/{name}"] for name in names] == reasons
    assert "z/level0.txt" in tree.keys


def _many(count: int, members: int = 1, size: int = 1) -> bytes:
    inner = build(*(Entry(f"m{n}", b"x" * size) for n in range(members)))
    return build(*(Entry(f"a{n:02}.zip", inner, STORED) for n in range(count)))


@pytest.mark.parametrize(
    ("limit", "reasons"),
    [
        ({"nested_members": 25}, [None, None, "too-many-entries", "too-many-entries"]),
        ({"nested_bytes": 25_000}, [None, None, "bomb-total", "bomb-total"]),
        ({"nested_archives": 3}, [None, None, None, "nested-budget"]),
    ],
)
def test_budgets(world: World, limit: dict[str, float], reasons: list[str | None]) -> None:
    """An archive beyond what is left is refused before anything of it is written."""
    world.tune(**limit)
    assert sorted(
        map(str, Tree(_many(4, members=10, size=1_000), ONE, world).reasons.values())
    ) == sorted(map(str, reasons))


def test_a_spent_budget_reaches_the_first_archives_of_the_directory(world: World) -> None:
    """Which archives are opened does not depend on the order in which they are on record.

    An archive that was copied by several tasks is opened as well.
    """
    world.tune(
        nested_archives=2,
        small_member=65_536,
        copy_from=65_536,
        copy_task_bytes=70_000,
        part_bytes=16_384,
    )
    inner = build(*(Entry(f"m{n}", bytes([n]) * 20_000) for n in range(10)))
    large = Entry("a00.zip", inner)  # on record after the batch
    small = [Entry(f"a0{number}.zip", wrap(0)) for number in (1, 2, 3)]
    assert Tree(build(large, *small), ONE, world).reasons == {
        "archive/a00.zip": None, "archive/a01.zip": None, "archive/a02.zip": "nested-budget",
    }  # fmt: skip


def test_an_archive_on_record_twice_takes_no_place_of_another(world: World) -> None:
    """A late stream records its archive again; the archives beyond the budget are still told."""
    world.tune(nested_archives=2)
    report = world.run_request(world.request(_many(4), ONE))
    records = world.records(report.run)
    twice = [outcome for outcome in records.all_outcomes() if outcome.index == 0]
    late = TaskReport("stream-00000000", TaskKind.STREAM, members=1, extracted=1)
    records.write_outcomes(late, twice)
    refused, *opened = world.machine.run_nested(report)
    assert (refused.key, refused.reason) == ("archive/a02.zip", "nested-budget")
    assert [one.verdict for one in opened] == [Verdict.COMPLETED] * 2


def test_the_budget_is_for_all_levels(world: World) -> None:
    """Not more archives than the budget are opened, however deep."""
    world.tune(nested_archives=2)
    assert [one.reason for one in Tree(wrap(5), Options(nested_depth=9), world).nested] == [
        None,
        None,
        "nested-budget",
    ]


def test_an_object_that_was_replaced_is_not_opened(world: World) -> None:
    """What is under the key must still be what the run wrote, and cost no more than allowed."""
    report = world.run_request(world.request(wrap(1), ONE))
    assert [one.reason for one in world.machine.run_nested(report, max_cost=0.0)] == ["not-begun"]
    world.out.objects["archive/inner.zip"] = replace(
        world.out.objects["archive/inner.zip"], body=wrap(3)
    )
    assert [one.reason for one in world.machine.run_nested(report)] == ["nested-changed"]


def test_the_password_opens_inner_archives() -> None:
    """The password opens what is inside too, and selections do not apply there."""
    inner = build(seal_aes(Entry("secret.txt", b"secret"), b"pw"), Entry("other.csv", b"1"))
    assert Tree(
        build(seal_aes(Entry("inner.zip", inner, DEFLATE), b"pw"), Entry("x.txt", b"x")),
        Options(nested_depth=1, include=("*.zip",), password_ref="file:p"),
        World(policy=Policy(password=b"pw")),
    ).keys == {
        "inner.zip",
        "inner/secret.txt",
        "inner/other.csv",
    }


def test_again_over_what_is_there(world: World) -> None:
    """A second time everything is known to be unchanged, and nested runs have the same names."""
    options = Options(nested_depth=2, on_conflict=OnConflict.SKIP_UNCHANGED)
    first = Tree(wrap(2), options, world)
    second = Tree(wrap(2), options, world)
    assert second.report.extracted == 0
    assert [one.run for one in second.nested] == [one.run for one in first.nested]


def test_requests_for_runs_side_by_side(world: World) -> None:
    """Runs that do not know of each other get equal shares of what is left."""
    world.tune(nested_archives=10, nested_members=100, nested_bytes=1_000)
    report = world.run_request(world.request(_many(3), Options(nested_depth=2)))
    requests = list(
        nested_requests(world.records(report.run).read_plan().run, report, world.context)
    )
    assert [
        (one.source.key, one.destination.key, one.options.nested_depth, one.options.nested_budget)
        for one in requests
    ] == [
        (f"archive/a0{number}.zip", f"archive/a0{number}/", 1, Budget(2, 33, 333))
        for number in range(3)
    ]
    assert [begin_run(request, world.context).report for request in requests] == [None] * 3


PLAIN = [Entry("a.txt", b"content\n" * 100, DEFLATE), Entry("b.txt", b"b"), Entry("empty.txt")]
# 7.3.4: deflated, AES with 256 bits and a password
ENCRYPTED = Shape(zip64=True, extensible=struct.pack("<HQQHHHHH", 8, 60, 51, 0x6610, 256, 1, 0, 0))
# What is refused: the archive, what is said, and what would be no fact, or help nobody.
REFUSALS = {
    "encrypted-directory": (
        build(replace(PLAIN[0], central={"signature": b"\x10\0\xb6\x28"}), shape=ENCRYPTED),
        "encrypted",
        "--lenient z01 --password",
    ),
    "strong-encryption": (build(replace(PLAIN[1], flags=0x41), PLAIN[0]), "PKZIP", "--password"),
    "counts-that-differ": (
        build(*PLAIN, shape=Shape(eocd={"disk_entries": 8})),
        "count-mismatch",
        "z01 split",
    ),
    "offset-too-small": (
        build(*PLAIN, shape=Shape(eocd={"directory_offset": 30})),
        "after its declared offset",
        "Another Fetch",
    ),
    "in-front": (build(PLAIN[1]) + build(*PLAIN), "Another ZIP archive precedes this one", "Fetch"),
}


@pytest.mark.parametrize("case", REFUSALS.values(), ids=REFUSALS)
@pytest.mark.parametrize("options", [(), ("--lenient",)])
def test_a_refusal_says_only_facts(
    program: processes.Program, case: tuple[bytes, str, str], options: tuple[str, ...]
) -> None:
    """It gives no guess as a reason, and no advice that cannot work."""
    raw, said, unsaid = case
    (program.folder / "x.zip").write_bytes(raw)
    ended = program.extract("x.zip", "out", *options)
    assert ended.code in {1, 3}
    assert said in ended.err
    assert [word for word in unsaid.split() if word in ended.err] == []
