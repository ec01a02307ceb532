"""Steps that the cases share: waiting for a run's report, and verifying what the run wrote."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from acceptance.site import Mismatch
from s3unzip.model import Verdict
from s3unzip.planning.keys import parse_template

if TYPE_CHECKING:
    from collections.abc import Callable

    from acceptance.site import Put, Site
    from s3unzip.model import Report
    from s3unzip.verification import Verification


@dataclass(frozen=True, slots=True)
class Done:
    """The result of a case in a few words, and the reports whose costs belong to it."""

    got: str
    reports: tuple[Report, ...] = ()


@dataclass(frozen=True, slots=True)
class Case:
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
    """Check the report's verdict.

    Raises:
        Mismatch: the verdict differs from the expected one.
    """
    if report.verdict is not verdict:
        raise Mismatch(verdict_line(report))


def expect_equal(
    site: Site, put: Put, *, but: frozenset[str] = frozenset(), password: bytes | None = None
) -> None:
    """Verify the destination against the archive, and compare samples of the bytes.

    Args:
        site: the environment.
        put: the archive.
        but: names of members that must not be there.
        password: of encrypted members.

    Raises:
        Mismatch: an object is missing, different or too many.
    """
    found = site.verify(put, password)
    wanted = {"missing": len(but)} if but else {}
    if found.counts != wanted or found.equal != found.members - len(but):
        raise Mismatch(differences(found))
    if found.members != put.archive.count:
        raise Mismatch(f"the directory lists {found.members:,} of {put.archive.count:,} members")
    if put.request.options.as_gzip is None:  # otherwise the verify read every object
        expect_bytes(site, put, but)


def expect_bytes(site: Site, put: Put, but: frozenset[str]) -> None:
    """Compare samples of the bytes of an archive's members, except those named in `but`.

    Raises:
        Mismatch: an object has other bytes.
    """
    key_of = parse_template(put.request).key_of()
    for stretch in put.archive.samples():
        if stretch.name in but:
            continue
        key = key_of(stretch.name)
        data = site.read(key, stretch.offset, len(stretch.data))
        if data != stretch.data:
            raise Mismatch(f"{key} has other bytes at {stretch.offset:,}")


def differences(found: Verification) -> str:
    """Return the result of a verify, in one line."""
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in found.counts.items())
    first = f", first {found.differences[0].key}" if found.differences else ""
    return f"verify: {found.equal:,} of {found.members:,} equal; {kinds}{first}"


def complete(site: Site, put: Put, password: bytes | None = None) -> Report:
    """Wait for the run's report, which must be COMPLETED, and verify every member.

    Raises:
        Mismatch: the verdict or a member is wrong.
    """
    report = site.wait_report(put)
    expect(report, Verdict.COMPLETED)
    expect_equal(site, put, password=password)
    return report
