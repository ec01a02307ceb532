"""Archives inside of archives: depth, budgets, collisions, and what is no archive."""

from dataclasses import replace
from threading import Semaphore

import pytest

from s3unzip.model import Budget, NestedRun, OnConflict, Options, Report, Verdict, decode
from s3unzip.settling.loop import begin
from s3unzip.settling.nested import nested_requests
from s3unzip.stores.ports import Buffer, ObjectFacts
from s3unzip.zip import Policy
from tests.support.memory import MemoryBucket, MemoryStores, World
from tests.support.servers import HANG_SECONDS
from tests.support.zips import DEFLATE, STORED, Entry, build, seal_aes

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
        self.nested = self.world.run_nested_here(self.report)

    @property
    def keys(self) -> set[str]:
        return set(self.world.contents())

    @property
    def reasons(self) -> dict[str, str | None]:
        return {one.key: one.reason for one in self.nested}


def test_without_a_depth_an_inner_archive_is_a_member() -> None:
    """Without a depth an archive inside is a member like any other."""
    tree = Tree(wrap(1), Options())
    assert tree.nested == []
    assert tree.keys == {"level0.txt", "inner.zip"}


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_depth(depth: int) -> None:
    """Archives are opened so many levels deep, below their own names, and no deeper."""
    tree = Tree(wrap(3), Options(nested_depth=depth))
    assert len(tree.nested) == depth
    assert all(one.verdict is Verdict.COMPLETED for one in tree.nested)
    deepest = "inner/" * depth
    assert f"{deepest}level{depth}.txt" in tree.keys
    assert f"{deepest}inner/level{depth + 1}.txt" not in tree.keys


def test_each_is_a_run_of_its_own() -> None:
    """A nested run has its own record and report, and the run above lists it."""
    tree = Tree(wrap(1), ONE)
    work = tree.world.buckets.run_store(tree.report.run)
    line = decode(work.read("nested.jsonl").splitlines()[0], NestedRun)
    assert line == tree.nested[0]
    assert line.run is not None
    report = decode(tree.world.buckets.run_store(line.run).read("report.json"), Report)
    assert (report.verdict, report.source.key) == (Verdict.COMPLETED, "archive/inner.zip")
    assert report.pin is not None
    assert report.pin.etag is not None


def test_inner_archives_that_cannot_be_opened() -> None:
    """What is only called so stays a member, which is no failure; a broken archive is not right."""
    names = {"a.zip": b"no archive", "b.ZIP": wrap(0), "c.zip": wrap(0) + b"trailing"}
    tree = Tree(build(*(Entry(name, data) for name, data in names.items())), ONE)
    reasons = {"archive/a.zip": "no-eocd", "archive/b.ZIP": None, "archive/c.zip": "trailing-data"}
    assert tree.reasons == reasons
    assert [one.is_right for one in tree.nested] == [True, True, False]
    assert tree.nested[2].verdict is Verdict.REJECTED
    assert tree.keys == {*names, "b/level0.txt"}


def test_members_are_not_written_over() -> None:
    """A nested archive is not opened if members of the outer archive are below its prefix."""
    tree = Tree(build(Entry("inner.zip", wrap(0)), Entry("inner/level0.txt", b"mine")), ONE)
    assert tree.reasons == {"archive/inner.zip": "nested-prefix-taken"}
    assert tree.world.contents()["inner/level0.txt"] == b"mine"


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
    tree = Tree(_many(4, members=10, size=1_000), ONE, world)
    assert sorted(map(str, tree.reasons.values())) == sorted(map(str, reasons))


class Reversing(MemoryBucket):
    """A bucket that takes the archive a00.zip after all others."""

    def __init__(self, others: int) -> None:
        super().__init__()
        self._others = Semaphore(0)
        self._count = others

    def put(self, key: str, body: Buffer, facts: ObjectFacts, *, if_absent: bool) -> str:
        if key.endswith("a00.zip"):
            for _ in range(self._count):
                assert self._others.acquire(timeout=HANG_SECONDS)
        etag = super().put(key, body, facts, if_absent=if_absent)
        self._others.release()
        return etag


def test_a_spent_budget_reaches_the_first_archives_of_the_directory() -> None:
    """Which archives are opened does not depend on the order in which their PUTs ended."""
    world = World(buckets=MemoryStores(out=Reversing(others=3)))
    world.tune(nested_archives=2)
    assert Tree(_many(4), ONE, world).reasons == {
        "archive/a00.zip": None, "archive/a01.zip": None, "archive/a02.zip": "nested-budget",
    }  # fmt: skip


def test_the_budget_is_for_all_levels(world: World) -> None:
    """Not more archives than the budget are opened, however deep."""
    world.tune(nested_archives=2)
    below = Tree(wrap(5), Options(nested_depth=9), world).nested
    assert [one.reason for one in below] == [None, None, "nested-budget"]


def test_an_object_that_was_replaced_is_not_opened(world: World) -> None:
    """What is under the key must still be what the run wrote."""
    report = world.run_request(world.request(wrap(1), ONE))
    world.out.objects["archive/inner.zip"] = replace(
        world.out.objects["archive/inner.zip"], body=wrap(3)
    )
    assert [one.reason for one in world.run_nested_here(report)] == ["nested-changed"]


def test_the_password_opens_inner_archives() -> None:
    """The password opens what is inside too, and selections do not apply there."""
    inner = build(seal_aes(Entry("secret.txt", b"secret"), b"pw"), Entry("other.csv", b"1"))
    outer = build(seal_aes(Entry("inner.zip", inner, DEFLATE), b"pw"), Entry("x.txt", b"x"))
    options = Options(nested_depth=1, include=("*.zip",), password_ref="file:p")
    tree = Tree(outer, options, World(policy=Policy(password=b"pw")))
    assert tree.keys == {"inner.zip", "inner/secret.txt", "inner/other.csv"}


def test_again_over_what_is_there(world: World) -> None:
    """A second time everything is known to be unchanged, and nested runs have the same names."""
    options = Options(nested_depth=2, on_conflict=OnConflict.SKIP_UNCHANGED)
    first = Tree(wrap(2), options, world)
    second = Tree(wrap(2), options, world)
    assert second.report.extracted == 0
    assert [one.run for one in second.nested] == [one.run for one in first.nested]


def test_large_nested_archives_are_found(world: World) -> None:
    """An archive that was copied, or split over tasks, is opened as well."""
    inner = build(*(Entry(f"m{n}", bytes([n]) * 20_000) for n in range(10)))
    world.tune(small_member=65_536, copy_from=65_536, copy_task_bytes=70_000, part_bytes=16_384)
    tree = Tree(build(Entry("big.zip", inner, STORED)), ONE, world)
    assert [one.verdict for one in tree.nested] == [Verdict.COMPLETED]
    assert len(tree.keys) == 11


def test_requests_for_runs_side_by_side(world: World) -> None:
    """Runs that do not know of each other get equal shares of what is left."""
    world.tune(nested_archives=10, nested_members=100, nested_bytes=1_000)
    report = world.run_request(world.request(_many(3), Options(nested_depth=2)))
    requests = list(
        nested_requests(world.records(report.run).read_plan().run, report, world.context)
    )
    assert [request.source.key for request in requests] == [
        "archive/a00.zip", "archive/a01.zip", "archive/a02.zip",
    ]  # fmt: skip
    for request in requests:
        assert request.destination.key == request.source.key.removesuffix(".zip") + "/"
        assert request.options.nested_depth == 1
        assert request.options.nested_budget == Budget(2, 33, 333)
        assert begin(request, world.context).report is None
