"""A report as people read it, on stderr, so that stdout stays JSON."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from s3unzip.cli.terminal.figures import printable, printable_name, show_bytes, show_seconds
from s3unzip.model import Verdict

if TYPE_CHECKING:
    from typing import TextIO

    from s3unzip.model import Report
    from s3unzip.reporting.nested import NestedRun

FAILURES_SHOWN = 10


def print_report(report: Report, stream: TextIO | None = None) -> None:
    """Print verdict, totals, reasons and the first failures."""
    out = stream or sys.stderr
    whence, where = printable(str(report.source)), printable(str(report.destination))
    out.write(f"{report.verdict}  {whence} -> {where}\n")
    if report.message:
        out.write(f"  {printable(report.message)}\n")
    if report.verdict is not Verdict.REJECTED:
        _print_totals(report, out)
    _print_failures(report, out)
    out.write(f"  run {report.run}\n")


def _print_totals(report: Report, out: TextIO) -> None:
    counts = [
        (report.extracted, "extracted"),
        (report.unchanged, "unchanged"),
        (report.failed, "failed"),
        (report.missing, "without outcome"),
        (report.excluded, "excluded"),
        (report.directories, "directories"),
    ]
    shown = ", ".join(f"{count:,} {name}" for count, name in counts if count)
    out.write(f"  {report.members:,} members: {shown or 'none'}\n")
    seconds = max(report.finished - report.started, 1e-9)
    done = report.extracted + report.unchanged
    out.write(
        f"  {show_bytes(report.bytes_in)} read, {show_bytes(report.bytes_out)} written "
        f"in {show_seconds(seconds)}: {done / seconds:,.0f} members/s, "
        f"{show_bytes(report.bytes_out / seconds)}/s\n"
    )
    requests = report.requests
    retried = f", {requests.retries:,} retried" if requests.retries else ""
    slowed = f", {requests.throttled:,} throttled" if requests.throttled else ""
    out.write(
        f"  requests: {requests.get:,} GET, {requests.put:,} PUT, "
        f"{requests.part + requests.copy:,} parts, {requests.head + requests.list:,} HEAD and "
        f"LIST{retried}{slowed}\n"
    )
    out.writelines(f"  warning {code}: {count:,}\n" for code, count in report.warnings.items())


def _print_failures(report: Report, out: TextIO) -> None:
    if not report.failed:
        return
    reasons = ", ".join(f"{code} {count:,}" for code, count in report.reasons.items())
    out.write(f"  failed: {reasons}\n")
    for failure in report.failures[:FAILURES_SHOWN]:
        where = f" at byte {failure.offset:,}" if failure.offset is not None else ""
        out.write(f"    {printable_name(failure.key)}: {failure.reason}{where}: ")
        out.write(f"{printable(failure.message)}\n")
    more = report.failed - FAILURES_SHOWN
    if more > 0:
        out.write(f"    and {more:,} more: s3unzip show {report.run} --failures\n")


def print_nested(nested: NestedRun, stream: TextIO | None = None) -> None:
    """Print what became of an archive inside the archive."""
    out = stream or sys.stderr
    said = nested.reason or ""
    if nested.message:
        said = f"{said}: {nested.message}"
    out.write(f"nested {nested.verdict or 'not extracted'}  {printable_name(nested.key)}\n")
    if said:
        out.write(f"  {printable(said)}\n")
    if nested.run is not None:
        out.write(f"  run {nested.run}\n")
