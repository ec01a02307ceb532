"""Whole runs, plan to report: what users see of every kind of archive."""

from __future__ import annotations

import io
import zlib

import pytest

from s3unzip.cli.output import print_report
from s3unzip.errors import AccessDeniedError, ThrottledError
from s3unzip.local.runner import redrive
from s3unzip.model import (
    OnConflict,
    Options,
    PlanSummary,
    Report,
    Verdict,
    decode,
)
from s3unzip.planning.plan_writer import make_plan
from s3unzip.stores.ports import ObjectFacts
from tests.memory import MemoryBucket, MemoryStores
from tests.runs import Bench
from tests.serial_pool import SerialPool
from tests.zips import Entry, build, unicode_path

DEFLATED = 8


def entries(count: int) -> list[Entry]:
    """Return so many small members, stored and deflated in turn."""
    return [
        Entry(f"d{n % 3}/f{n}.json", b'{"n": %d}' % n * (n + 1), method=DEFLATED * (n % 2))
        for n in range(count)
    ]


def expected(members: list[Entry]) -> dict[str, bytes]:
    """Return what should be written."""
    return {str(member.name): member.content for member in members}


def test_every_member_is_written_and_reported() -> None:
    """A good archive gives COMPLETED, and exactly its members with their bytes."""
    bench, members = Bench(), entries(50)
    report = bench.run(build(*members))
    assert report.verdict is Verdict.COMPLETED
    assert (report.members, report.extracted, report.failed, report.missing) == (50, 50, 0, 0)
    assert bench.contents() == expected(members)


def test_a_small_archive_is_planned_with_one_get() -> None:
    """The suffix range returns tail, size and pin, and contains the complete directory."""
    bench = Bench()
    summary = make_plan(bench.request(build(*entries(20))), bench.context)
    assert isinstance(summary, PlanSummary)
    assert summary.requests.get == 1


def test_a_large_directory_is_read_in_pinned_pieces() -> None:
    """What the tail does not hold is read in parallel ranges; the plan is the same."""
    bench, members = Bench(), entries(400)
    bench.tune(tail_bytes=200, directory_piece=1000)
    report = bench.run(build(*members))
    assert report.verdict is Verdict.COMPLETED
    assert bench.contents() == expected(members)
    assert report.requests.get > 20


def test_objects_carry_what_verify_needs() -> None:
    """Type from the name, CRC-32, time and mode beside the bytes."""
    bench = Bench()
    report = bench.run(build(Entry("a/page.html", b"<p>hi")))
    facts = bench.out.objects["archive/a/page.html"].facts
    assert facts.content_type == "text/html"
    assert facts.metadata["zip-crc32"] == f"{zlib.crc32(b'<p>hi'):08x}"
    assert facts.metadata["mode"] == "644"
    assert int(facts.metadata["mtime"]) > 0
    assert facts.metadata["s3unzip-run"] == report.run


def test_a_broken_index_writes_nothing() -> None:
    """A rejected archive has a report with the check's code, and no object."""
    bench = Bench()
    report = bench.run(build(*entries(3)) + b"trailing")
    assert report.verdict is Verdict.REJECTED
    assert report.reason == "trailing-data"
    assert bench.out.objects == {}
    written = decode(bench.stores.run_store(report.run).read("report.json"), Report)
    assert written.verdict is Verdict.REJECTED


def test_a_poison_member_fails_alone() -> None:
    """A wrong CRC is the outcome of its member; all others are extracted."""
    bench, members = Bench(), entries(50)
    poisoned = Entry("poison.txt", b"good", central={"crc32": 1}, local={"crc32": 1})
    report = bench.run(build(*members[:25], poisoned, *members[25:]))
    assert report.verdict is Verdict.COMPLETED_WITH_ERRORS
    assert (report.extracted, report.failed) == (50, 1)
    assert report.reasons == {"crc-mismatch": 1}
    failure = report.failures[0]
    assert failure.key == "archive/poison.txt"
    assert failure.offset is not None
    assert bench.contents() == expected(members)


def test_members_refused_at_the_index_are_reported_too() -> None:
    """A name that leaves the prefix is an outcome before any worker starts."""
    bench = Bench()
    report = bench.run(build(Entry("../evil", b"x"), Entry("good", b"y")))
    assert report.verdict is Verdict.COMPLETED_WITH_ERRORS
    assert report.reasons == {"name-dotdot": 1}
    assert bench.contents() == {"good": b"y"}


def test_an_empty_archive_completes() -> None:
    """No member is no fault."""
    report = Bench().run(build())
    assert report.verdict is Verdict.COMPLETED
    assert report.members == 0


def test_directories_are_counted_not_written() -> None:
    """S3 has no folders."""
    bench = Bench()
    report = bench.run(build(Entry("a/"), Entry("a/b", b"1")))
    assert (report.directories, report.extracted) == (1, 1)
    assert bench.contents() == {"a/b": b"1"}


def test_include_exclude_and_limit_select() -> None:
    """Globs, names and a limit choose members; the rest is counted as excluded."""
    bench, members = Bench(), entries(30)
    options = Options(include=("d1/**",), exclude=("*4.json",), limit=5)
    report = bench.run(build(*members), options)
    wanted = [m for m in members if str(m.name).startswith("d1/") and "4.json" not in str(m.name)]
    assert bench.contents() == expected(wanted[:5])
    assert report.excluded == 25


def test_a_key_template_places_members() -> None:
    """Keys follow the template, and local headers are still matched by their raw names."""
    bench = Bench()
    archive = build(Entry("a/b/one.txt", b"1"), Entry("zwei-ü.txt", b"2"))
    report = bench.run(archive, Options(key_template="{bucket}/{stem}/{dir}/x{suffix}"))
    assert report.verdict is Verdict.COMPLETED
    assert set(bench.out.objects) == {"ingest/one/a/b/x.txt", "ingest/zwei-ü/x.txt"}


def test_a_unicode_path_is_checked_against_the_member_not_the_key() -> None:
    """A template that moves members leaves the local header's own name to be compared."""
    bench = Bench()
    raw = "d/naïve.txt".encode("cp437")
    entry = Entry(raw, b"x", extra=unicode_path(raw, "d/naïve.txt"))
    report = bench.run(build(entry), Options(key_template="{stem}-copy{suffix}"))
    assert report.verdict is Verdict.COMPLETED, report.failures
    assert set(bench.out.objects) == {"naïve-copy.txt"}


def test_two_members_with_one_key_reject_the_archive() -> None:
    """A template that flattens folders may not lose a member silently."""
    bench = Bench()
    archive = build(Entry("a/x", b"1"), Entry("b/x", b"2"))
    report = bench.run(archive, Options(key_template="{name}"))
    assert (report.verdict, report.reason) == (Verdict.REJECTED, "duplicate-name")


def test_skip_unchanged_puts_only_what_differs() -> None:
    """A second run lists, sends HEAD if sizes agree, and PUTs only members that differ."""
    bench, members = Bench(), entries(40)
    archive = build(*members)
    bench.run(archive)
    del bench.out.objects["archive/d0/f0.json"]
    changed = bench.out.objects["archive/d1/f1.json"]
    changed.facts.metadata["zip-crc32"] = "00000000"
    before = bench.out.puts
    report = bench.run(archive, Options(on_conflict=OnConflict.SKIP_UNCHANGED))
    assert report.verdict is Verdict.COMPLETED
    assert (report.extracted, report.unchanged) == (2, 38)
    assert bench.out.puts - before == 2
    assert report.requests.head == 39 + 2  # of members, and of records that are streamed


def test_never_keeps_what_is_there() -> None:
    """An equal object is unchanged, a different one is a failed member and stays."""
    bench, members = Bench(), entries(4)
    bench.out.put("archive/d0/f0.json", b"mine", ObjectFacts("x", {}), if_absent=False)
    archive = build(*members)
    report = bench.run(archive, Options(on_conflict=OnConflict.NEVER))
    assert report.reasons == {"exists": 1}
    assert bench.out.objects["archive/d0/f0.json"].body == b"mine"
    again = bench.run(archive, Options(on_conflict=OnConflict.NEVER))
    assert (again.extracted, again.unchanged, again.failed) == (0, 3, 1)


def test_an_overwritten_source_is_a_verdict() -> None:
    """A range that answers 412 ends the run as SOURCE_CHANGED, not as a mix."""
    bench = Bench()
    request = bench.request(build(*entries(10)))
    summary = make_plan(request, bench.context)
    assert isinstance(summary, PlanSummary)
    bench.stores.bucket("ingest").put(
        request.source.key, build(*entries(11)), ObjectFacts("x", {}), if_absent=False
    )
    context = bench.context
    report = redrive(summary, context, lambda run: SerialPool(run, context))
    assert report.verdict is Verdict.SOURCE_CHANGED
    assert bench.out.objects == {}


class Refusing(MemoryBucket):
    """A bucket whose PUTs are refused after the first `allowed`."""

    def __init__(self, allowed: int, error: Exception) -> None:
        super().__init__()
        self.allowed = allowed
        self.asked = 0
        self._error = error

    def put(self, key: str, body: object, facts: ObjectFacts, *, if_absent: bool) -> str:
        """Write, or refuse."""
        self.asked += 1
        if self.allowed <= 0:
            raise self._error
        self.allowed -= 1
        return super().put(key, body, facts, if_absent=if_absent)  # type: ignore[arg-type]  # passed on


def test_a_refused_destination_stops_the_run() -> None:
    """The first 403 stops the run after a few requests; redrive continues when it is mended."""
    refusing = Refusing(10, AccessDeniedError("s3:PutObject on out is missing"))
    bench, members = Bench(stores=MemoryStores(out=refusing)), entries(500)
    report = bench.run(build(*members))
    assert report.verdict is Verdict.FAILED
    assert report.reason == "access-denied"
    assert "s3:PutObject" in str(report.message)
    assert refusing.asked < 100
    refusing.allowed = 10_000
    summary = decode(bench.stores.run_store(report.run).read("summary.json"), PlanSummary)
    context = bench.context
    again = redrive(summary, context, lambda run: SerialPool(run, context))
    assert again.verdict is Verdict.COMPLETED
    assert bench.contents() == expected(members)


class Closed(MemoryBucket):
    """Begins no upload."""

    def create_upload(self, key: str, facts: ObjectFacts) -> str:
        """Refuse.

        Raises:
            AccessDeniedError: always.
        """
        raise AccessDeniedError(f"s3:PutObject on {key} is missing, for {facts.content_type}")


def test_a_destination_that_refuses_the_probe_leaves_no_plan() -> None:
    """The plan ends with the destination's words, before any of its objects is there."""
    bench = Bench(stores=MemoryStores(out=Closed()))
    with pytest.raises(AccessDeniedError, match=r"s3:PutObject on archive/d0/f0\.json is missing"):
        make_plan(bench.request(build(*entries(20))), bench.context)
    (work,) = bench.stores.runs.values()
    assert [name for name in work.names("") if not name.startswith("uploads/")] == []


def test_a_throttled_destination_fails_the_task_not_the_member() -> None:
    """When the retry budget is spent, the run is FAILED and nothing is lost."""
    refusing = Refusing(0, ThrottledError("slow down"))
    bench = Bench(stores=MemoryStores(out=refusing))
    bench.tune(retry_seconds=1.0)
    report = bench.run(build(*entries(5)))
    assert report.verdict is Verdict.FAILED
    assert (report.missing, report.failed) == (5, 0)
    assert report.requests.throttled > 0


def test_a_run_is_the_same_for_the_same_request() -> None:
    """The id depends on archive version, destination and options, and on nothing else."""
    bench = Bench()
    archive = build(*entries(3))
    one = bench.run(archive)
    assert bench.run(archive).run == one.run
    assert bench.run(archive, Options(lenient=True)).run != one.run
    assert bench.run(build(*entries(4))).run != one.run


@pytest.mark.parametrize("size", [1, 7, 60])
def test_tasks_are_cut_by_member_count(size: int) -> None:
    """Many small tasks write what one large task writes."""
    bench, members = Bench(), entries(60)
    bench.tune(batch_members=size)
    report = bench.run(build(*members))
    assert report.tasks == -(-60 // size)
    assert bench.contents() == expected(members)


def test_the_marker_is_written_last_if_asked() -> None:
    """Readers that need all or nothing wait for _SUCCESS."""
    bench = Bench()
    bench.run(build(*entries(3)), Options(marker=True))
    assert "archive/_SUCCESS" in bench.out.objects


def test_an_archive_cannot_forge_the_marker() -> None:
    """With a marker, a member of its name is refused; without one it is a member."""
    bench = Bench()
    bad = Entry("bad", b"x", local={"crc32": 1}, central={"crc32": 1})
    archive = build(Entry("_SUCCESS", b"forged"), Entry("_success/a", b"x"), Entry("b", b"2"), bad)
    report = bench.run(archive, Options(marker=True))
    assert report.verdict is Verdict.COMPLETED_WITH_ERRORS
    assert report.reasons == {"name-reserved": 2, "crc-mismatch": 1}
    assert bench.contents() == {"b": b"2"}
    plain = Bench()
    plain.run(archive)
    assert set(plain.contents()) == {"_SUCCESS", "_success/a", "b"}


def test_long_names_make_no_long_report() -> None:
    """Two hundred names of 65 KB are cut wherever they are shown."""
    bench = Bench()
    names = [f"../{number:03}" + "n" * 65_000 for number in range(100)]
    names += [f"{number:03}" + "n" * 65_000 for number in range(100)]
    report = bench.run(build(*map(Entry, names), Entry("fine", b"1")))
    assert (report.failed, report.extracted) == (200, 1)
    work = bench.stores.run_store(report.run)
    for name in ("report.json", "outcomes/index.jsonl"):
        assert len(work.read(name)) < 200 * 1_000
    assert all(len(failure.key) < 300 for failure in report.failures)
    shown = io.StringIO()
    print_report(report, shown)
    assert len(shown.getvalue()) < 10_000


@pytest.mark.parametrize("large", [False, True])
def test_what_hides_behind_a_member_is_found(large: bool) -> None:  # noqa: FBT001 - a parameter
    """A local header within 64 KiB after a member's data is a warning, however it is read."""
    bench = Bench()
    bench.tune(small_member=10 if large else 1 << 20)
    hidden = Entry("a", b"1" * 100, after=bytes(60_000) + b"PK\3\4 hidden")
    report = bench.run(build(hidden, Entry("b", b"2" * 100)))
    assert report.verdict is Verdict.COMPLETED
    assert report.warnings == {"hidden-local-header": 1}


def test_the_owner_can_read_what_is_restored() -> None:
    """A mode without any permission, as some writers give, leaves the owner's right to read."""
    bench = Bench()
    bench.run(build(Entry("a", b"1", attributes=0o100000 << 16), Entry("b", b"1")))
    modes = {key: stored.facts.metadata["mode"] for key, stored in bench.out.objects.items()}
    assert modes == {"archive/a": "400", "archive/b": "644"}


def test_an_empty_entry_can_be_a_directory_by_its_attributes() -> None:
    """The members below it are extracted, because no file has its key."""
    bench = Bench()
    report = bench.run(build(Entry("d", attributes=0o40755 << 16), Entry("d/a", b"1")))
    assert (report.verdict, report.directories) == (Verdict.COMPLETED, 1)
    assert bench.contents() == {"d/a": b"1"}
    assert report.warnings == {"dir-attr-without-slash": 1}


def test_gaps_between_members_are_not_read() -> None:
    """A batch skips a long gap with a separate range, and notes hidden data there."""
    bench = Bench()
    bench.tune(gap_bytes=1000)
    archive = build(Entry("a", b"1" * 100, after=b"\0" * 300_000), Entry("b", b"2" * 100))
    report = bench.run(archive)
    assert report.verdict is Verdict.COMPLETED
    assert report.bytes_in < 250_000 + bench.tuning.tail_bytes
    assert bench.contents() == {"a": b"1" * 100, "b": b"2" * 100}
