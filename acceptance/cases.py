"""The cases with one archive: the archive, the expected result, and how it is checked.

A check raises `Mismatch` for an unexpected result.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from acceptance.archives import (
    Archive,
    Member,
    corrupt,
    encrypt,
    large_member,
    small_members,
    stored_member,
)
from acceptance.site import Mismatch, NotApplicableError, Put, Site
from s3unzip.api.verification import Verification
from s3unzip.model import Report, TaskKind, Verdict
from s3unzip.rates import DIRECT_MEMBER_BYTES
from s3unzip.settings import KIB, MIB, Tuning

SHARE = 0.4  # compressed size over uncompressed size
TINY, MANY, FEW = 5, 5_000, 20
SMALL_BYTES = 2 * KIB
ABOVE = 1.1  # factor over the smallest size that gives the wanted kind of task


class Done(NamedTuple):
    """The result of a case in a few words, and the reports whose costs belong to it."""

    got: str
    reports: tuple[Report, ...] = ()


class Case(NamedTuple):
    """One row of the table; `act` raises `Mismatch` for an unexpected result."""

    name: str
    expected: str
    act: Callable[[Site], Done]


def verdict_line(report: Report) -> str:
    """Return the verdict of a report and its reason, in one line."""
    counts = f"{report.extracted:,} extracted, {report.failed:,} failed, {report.missing:,} missing"
    listed = report.failures[0].message if report.failures else ""
    why = report.message or report.reason or listed
    first = why.strip().splitlines()[0] if why.strip() else ""
    return f"{report.verdict.value}: {counts}" + (f"; {first}" if first else "")


def expect(report: Report, verdict: Verdict) -> None:
    """Check the report's verdict."""
    if report.verdict is not verdict:
        raise Mismatch(verdict_line(report))


def expect_equal(
    site: Site, put: Put, *, but: frozenset[str] = frozenset(), password: bytes | None = None
) -> None:
    """Verify the destination against the archive, by its bytes unless there are too many.

    Members named in `but` must not be there.
    """
    found = site.verify(put, password)
    wanted = {"missing": len(but)} if but else {}
    if found.counts != wanted or found.equal != found.members - len(but):
        raise Mismatch(_differences(found))
    if found.members != put.archive.count:
        raise Mismatch(f"the directory lists {found.members:,} of {put.archive.count:,} members")


def _differences(found: Verification) -> str:
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in found.counts.items())
    first = f", first {found.differences[0].key}" if found.differences else ""
    return f"verify: {found.equal:,} of {found.members:,} equal; {kinds}{first}"


def complete(site: Site, put: Put, password: bytes | None = None) -> Report:
    """Wait for the run's report, which must be COMPLETED, and verify every member."""
    report = site.wait_report(put)
    expect(report, Verdict.COMPLETED)
    expect_equal(site, put, password=password)
    return report


def small_archive(count: int, size: int = SMALL_BYTES, share: float = SHARE) -> Archive:
    """Return an archive of `count` small members of `size` bytes."""
    return Archive(partial(small_members, count, size, share), count)


def _one_member(member: Member) -> Archive:
    return Archive(lambda: iter((member,)), 1)


def split_size(tuning: Tuning, share: float) -> int:
    """Return the smallest size, uncompressed bytes, of a deflated member that is split."""
    compressed = max(tuning.split_from, 2 * tuning.segment_bytes)
    return round(max(tuning.small_member, above_direct(tuning), compressed / share) * ABOVE)


def above_direct(tuning: Tuning) -> int:
    """Return the bytes of a member that no direct run extracts; 0 if there are no direct runs."""
    return min(DIRECT_MEMBER_BYTES, tuning.max_direct_bytes) if tuning.max_direct_members else 0


def _expect_kind(site: Site, put: Put, kind: TaskKind) -> None:
    kinds = site.runs.records(put.run).read_plan().kinds
    if kinds != {kind.value: 1}:
        raise Mismatch(f"the member was done as {', '.join(kinds) or 'nothing'}, not as {kind}")


def _do_small(site: Site, *, name: str, count: int) -> Done:
    put = site.put(name, small_archive(count))
    report = complete(site, put)
    way = "a direct run" if site.runs.state(put.run) is None else "an execution"
    return Done(f"{report.verdict}, {count:,} equal, by {way}", (report,))


def _do_stored(site: Site) -> Done:
    tuning = site.config.tuning
    size = round(max(tuning.copy_from, tuning.small_member, above_direct(tuning)) * ABOVE)
    put = site.put("stored", _one_member(stored_member("copied.bin", size)))
    report = complete(site, put)
    kind = TaskKind.STREAM if site.config.environment_defaults.options.as_gzip else TaskKind.COPY
    _expect_kind(site, put, kind)
    return Done(f"{report.verdict}, {kind} of {size / MIB:.1f} MiB", (report,))


def _do_split(site: Site) -> Done:
    put = site.put("split", _one_member(_split_member(site)))
    report = complete(site, put)
    _expect_kind(site, put, TaskKind.SCAN)
    tasks = site.runs.records(put.run).read_plan().tasks
    return Done(f"{report.verdict}, {tasks} segments", (report,))


def _split_member(site: Site) -> Member:
    return large_member("huge.txt", split_size(site.config.tuning, SHARE * 0.85), SHARE)


def do_encrypted(site: Site) -> Done:
    """Extract members that are encrypted with the environment's password."""
    password = site.password
    if password is None:
        raise NotApplicableError("no secret: the environment has no password_secret")

    def sealed() -> Iterator[Member]:
        for number, member in enumerate(small_members(FEW, SMALL_BYTES, SHARE)):
            yield encrypt(member, password, version=1 + number % 2)

    report = complete(site, site.put("encrypted", Archive(sealed, FEW)), password)
    return Done(f"{report.verdict}, {FEW} equal", (report,))


def do_corrupt(site: Site) -> Done:
    """Fail exactly the one member whose content differs from the directory."""
    members = list(small_members(FEW, SMALL_BYTES, SHARE))
    bad = FEW // 2
    members[bad] = corrupt(members[bad])
    put = site.put("corrupt", Archive(lambda: iter(members), FEW))
    report = site.wait_report(put)
    expect(report, Verdict.COMPLETED_WITH_ERRORS)
    failed = [failure.key for failure in report.failures]
    if len(failed) != 1 or not failed[0].endswith(members[bad].name):
        raise Mismatch(f"{verdict_line(report)}: {', '.join(failed)}")
    expect_equal(site, put, but=frozenset({members[bad].name}))
    return Done(f"{report.verdict}, {report.reasons}", (report,))


def do_refused(site: Site) -> Done:
    """Refuse an archive whose end is missing, and write nothing."""
    put = site.put("refused", Archive(small_archive(FEW).members, FEW, cut=30))
    report = site.wait_report(put)
    expect(report, Verdict.REJECTED)
    if site.runs.state(put.run) is not None:
        raise Mismatch("REJECTED, but an execution was started")
    listed = site.s3.list_objects_v2(
        Bucket=put.request.destination.bucket, Prefix=site.member_prefix("refused")
    )
    if listed["KeyCount"]:
        raise Mismatch(f"REJECTED, yet {listed['KeyCount']} objects were written")
    return Done(f"{report.verdict}, {report.reason}", (report,))


class Published(NamedTuple):
    """An archive that others measured with."""

    name: str
    members: int
    size: int  # bytes of a member
    share: float  # of it, compressed
    divisor: int  # of the small scale


PUBLISHED = (
    Published("49k", 49_152, 64 * KIB, 0.4463, 512),
    Published("1k", 1_000, 4_724_883, 0.4596, 250),
    Published("400k", 400_000, 10_000, 0.4, 1_000),
    Published("100gb", 1, 100_000_000_000, 0.35, 10_000),
)
FULL_DOLLARS = 5.0  # about what they cost together; most of it are 449,152 PUTs


def published_archive(one: Published, *, full: bool) -> Archive:
    """Return the archive: with fewer members at the small scale, or a smaller one."""
    divisor = 1 if full else one.divisor
    if one.members == 1:
        return _one_member(large_member("huge.txt", one.size // divisor, one.share))
    return small_archive(one.members // divisor, one.size, one.share)


def _do_published(site: Site, *, one: Published, full: bool) -> Done:
    archive = published_archive(one, full=full)
    put = site.put(f"published-{one.name}", archive)
    report = complete(site, put)
    got = f"{report.verdict}, {archive.count:,} equal, {put.pin.size / MIB:,.1f} MiB"
    if report.event_time is not None:
        got += f", {report.finished - report.event_time:,.1f} s from put to report"
    return Done(got, (report,))


def published_cases(*, full: bool) -> list[Case]:
    """Return the cases of the published archives."""
    sizes = {one.name: "as published" if full else f"1/{one.divisor:,}" for one in PUBLISHED}
    return [
        Case(one.name, f"COMPLETED, {sizes[one.name]}", partial(_do_published, one=one, full=full))
        for one in PUBLISHED
    ]


CASES = (
    Case("tiny", "COMPLETED, 5 equal", partial(_do_small, name="tiny", count=TINY)),
    Case("members", "COMPLETED, 5,000 equal", partial(_do_small, name="members", count=MANY)),
    Case("stored", "COMPLETED, copied server-side", _do_stored),
    Case("split", "COMPLETED, in several segments", _do_split),
    Case("encrypted", "COMPLETED, 20 equal", do_encrypted),
    Case("corrupt", "COMPLETED_WITH_ERRORS, one member", do_corrupt),
    Case("refused", "REJECTED, nothing written", do_refused),
)
