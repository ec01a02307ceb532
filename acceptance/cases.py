"""The cases with one archive: the archive, and the expected result."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from acceptance.archives import Archive
from acceptance.checks import Case, Done, complete, expect, expect_equal, verdict_line
from acceptance.contents import corrupt, encrypt, large_member, small_members, stored_member
from acceptance.site import Mismatch, NotApplicableError
from s3unzip.model import TaskKind, Verdict
from s3unzip.settings import KIB, MIB

if TYPE_CHECKING:
    from collections.abc import Iterator

    from acceptance.contents import Member
    from acceptance.site import Put, Site
    from s3unzip.settings import Tuning

SHARE = 0.4  # compressed size over uncompressed size
TINY, MANY, FEW = 5, 5_000, 20
SMALL_BYTES = 2 * KIB
ABOVE = 1.1  # factor over the smallest size that gives the wanted kind of task


def small_archive(count: int, size: int = SMALL_BYTES, share: float = SHARE) -> Archive:
    """Return an archive of `count` small members of `size` bytes."""
    return Archive(partial(small_members, count, size, share), count)


def one_member(member: Member) -> Archive:
    """Return an archive of one member."""
    return Archive(lambda: iter((member,)), 1)


def split_size(tuning: Tuning, share: float) -> int:
    """Return the smallest size, uncompressed bytes, of a deflated member that is split."""
    compressed = max(tuning.split_from, 2 * tuning.segment_bytes)
    return round(max(tuning.small_member, above_direct(tuning), compressed / share) * ABOVE)


def above_direct(tuning: Tuning) -> int:
    """Return the bytes of a member that no direct run extracts; 0 if there are no direct runs."""
    return tuning.max_direct_member_bytes if tuning.max_direct_members else 0


def expect_kind(site: Site, put: Put, kind: TaskKind) -> None:
    """Check the kind of task that extracted an archive's only member.

    Raises:
        Mismatch: the kind differs from `kind`.
    """
    kinds = site.summary(put).kinds
    if kinds != {kind.value: 1}:
        raise Mismatch(f"the member was done as {', '.join(kinds) or 'nothing'}, not as {kind}")


def do_small(site: Site, *, name: str, count: int) -> Done:
    """Extract `count` small members."""
    report = complete(site, site.put(name, small_archive(count)))
    way = "an execution" if report.records is None else "a direct run"
    return Done(f"{report.verdict}, {count:,} equal, by {way}", (report,))


def do_stored(site: Site) -> Done:
    """Copy one stored member server-side."""
    tuning = site.scale.tuning
    size = round(max(tuning.copy_from, tuning.small_member, above_direct(tuning)) * ABOVE)
    put = site.put("stored", one_member(stored_member("copied.bin", size)))
    report = complete(site, put)
    kind = TaskKind.STREAM if site.orders.options.as_gzip else TaskKind.COPY
    expect_kind(site, put, kind)
    return Done(f"{report.verdict}, {kind} of {size / MIB:.1f} MiB", (report,))


def do_split(site: Site) -> Done:
    """Split one huge deflated member."""
    put = site.put("split", one_member(split_member(site)))
    report = complete(site, put)
    expect_kind(site, put, TaskKind.SEGMENT)
    slices = site.summary(put).tasks
    return Done(f"{report.verdict}, {slices} slices", (report,))


def split_member(site: Site) -> Member:
    """Return a deflated member that the deployed environment splits."""
    return large_member("huge.txt", split_size(site.scale.tuning, SHARE * 0.85), SHARE)


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
    whole = small_archive(FEW)
    put = site.put("refused", Archive(whole.members, FEW, cut=30))
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


CASES = (
    Case("tiny", "COMPLETED, 5 equal", partial(do_small, name="tiny", count=TINY)),
    Case("members", "COMPLETED, 5,000 equal", partial(do_small, name="members", count=MANY)),
    Case("stored", "COMPLETED, copied server-side", do_stored),
    Case("split", "COMPLETED, more than one slice", do_split),
    Case("encrypted", "COMPLETED, 20 equal", do_encrypted),
    Case("corrupt", "COMPLETED_WITH_ERRORS, one member", do_corrupt),
    Case("refused", "REJECTED, nothing written", do_refused),
)
