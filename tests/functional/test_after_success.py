"""After success on one machine: ``--after-success`` at the real command line, and in the runner."""

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from s3unzip.api.options import parse_after_success
from s3unzip.errors import UsageError
from s3unzip.local.machine import Machine
from s3unzip.model import (
    AfterSuccess,
    Location,
    Options,
    Report,
    Request,
    SourceAction,
    SourceState,
    Verdict,
    decode,
    encode,
    run_id,
)
from s3unzip.settling.report import source_result
from s3unzip.stores.locations import parse_source
from tests.processes import Program
from tests.runs import World
from tests.zips import DEFLATE, Entry, build

BODY = build(*(Entry(f"d/{n}.txt", b"%d" % n * 50, DEFLATE) for n in range(4)))
DELETE = AfterSuccess(SourceAction.DELETE)
WRONG = {"crc32": 1}


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """Return the command line, in a folder with a sound archive and a damaged one."""
    (tmp_path / "a.zip").write_bytes(BODY)
    bad = Entry("bad.txt", b"x" * 500, DEFLATE, local=WRONG, central=WRONG)
    (tmp_path / "damaged.zip").write_bytes(build(Entry("good", b"1"), bad))
    return Program(tmp_path)


def test_a_file_is_deleted(program: Program) -> None:
    """The archive is gone, its members are there, and the report says so."""
    ended = program.run("run", "a.zip", "out", "-w", "1", "--json", "--after-success", "delete")
    assert ended.code == 0
    assert json.loads(ended.out)["after_success"] == {"action": "delete", "state": "done"}
    assert "the archive is deleted" in ended.err
    assert not (program.folder / "a.zip").exists()
    assert len(list((program.folder / "out").rglob("*.txt"))) == 4


@pytest.mark.parametrize(
    "words", [("--limit", "1"), ("-m", "0.txt"), ("-x", "0*"), ("--strip-components", "1")]
)
def test_an_archive_is_not_deleted_after_a_selection(
    program: Program, words: tuple[str, ...]
) -> None:
    """Members that are not extracted would be lost: nothing is done."""
    ended = program.run("run", "a.zip", "out", "--after-success", "delete", *words)
    assert ended.code == 2
    assert "members that are not extracted would be lost" in ended.err
    assert (program.folder / "a.zip").exists()
    assert not (program.folder / "out").exists()


def test_a_damaged_archive_stays(program: Program) -> None:
    """Only COMPLETED is success."""
    ended = program.run("run", "damaged.zip", "out", "-w", "1", "--after-success", "delete")
    assert ended.code == 1
    assert (program.folder / "damaged.zip").exists()


@pytest.mark.parametrize(
    ("source", "text", "words"),
    [
        ("a.zip", "burn", "'burn' is none of delete or tag=NAME=VALUE"),
        ("a.zip", "delete=x", "is none of"),
        ("a.zip", "move=done", "is none of"),
        ("a.zip", "tag=a=b", "is a file, which has no tags: delete it"),
        ("s3://arrivals/a.zip", "tag=a", "a tag is NAME=VALUE, not 'a'"),
        ("https://host/a.zip?key=secret", "delete", r"https://host/a.zip\?... is only read"),
    ],
)
def test_what_cannot_be_asked_for(source: str, text: str, words: str) -> None:
    """It is refused before anything is read, in words that say what is possible."""
    with pytest.raises(UsageError, match=words):
        parse_after_success(text, parse_source(source), Options())


def test_what_can_be_asked_for() -> None:
    """An archive is deleted or tagged; it is deleted only if all its members are extracted."""
    where = Location("s3", "arrivals", "t/a.zip")
    assert parse_after_success("delete", where, Options()) == DELETE
    tagged = parse_after_success("tag=state=a=b", where, Options(limit=1))
    assert tagged == AfterSuccess(SourceAction.TAG, tags={"state": "a=b"})
    for some in (Options(limit=1), Options(include=("*",)), Options(strip_components=1)):
        with pytest.raises(UsageError, match="members that are not extracted would be lost"):
            parse_after_success("delete", where, some)


def test_the_rule_is_no_part_of_the_identity_and_survives_json() -> None:
    """The same archive with another rule is the same run, so it is known."""
    world = World()
    request = world.request(BODY)
    ruled = Request(request.source, request.destination, request.options, after_success=DELETE)
    pin = world.context.stores.source(request.source).head(request.source)
    assert run_id(request, pin, 0.0) == run_id(ruled, pin, 0.0)
    assert decode(encode(ruled), Request) == ruled


@pytest.mark.parametrize("text", ['{"action": "tag"}', '{"action": "delete", "tags": {"a": "b"}}'])
def test_a_rule_that_says_too_little_or_too_much_is_refused(text: str) -> None:
    """Nothing is deleted that was to be tagged."""
    with pytest.raises(UsageError, match=r"go(es)? with the action"):
        decode(text, AfterSuccess)


def run_ruled(world: World, body: bytes, rule: AfterSuccess) -> Report:
    """Extract an archive with a rule; return the report."""
    request = world.request(body)
    ruled = Request(request.source, request.destination, request.options, after_success=rule)
    return Machine(world.context).run(ruled)


@pytest.mark.parametrize("failed", [False, True])
def test_a_run_that_is_resumed_after_the_action_leaves_it(*, failed: bool) -> None:
    """The report still says that it is done; the same bytes, put again, stay."""
    world = World()
    report = run_ruled(world, BODY, DELETE)
    assert report.after_success is not None
    assert report.after_success.state is SourceState.DONE
    source = world.request(BODY).source
    later = Machine(world.context).resume(report.run, failed=failed)
    assert later.verdict is Verdict.COMPLETED
    assert later.after_success == report.after_success
    assert source.key in world.buckets.bucket(source.bucket).objects


def test_a_split_archive_is_kept() -> None:
    """It is several files, each with a version of its own."""
    world = World()
    report = run_ruled(world, BODY, DELETE)
    run = world.records(report.run).read_plan().run
    split = replace(run, pin=replace(run.pin, parts=(run.pin, run.pin)))
    kept = source_result(split, report, None)
    assert kept is not None
    assert kept.state is SourceState.KEPT
    assert "split into 2 files" in str(kept.message)
