"""A report as people read it, on stderr, so that stdout stays JSON."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from s3unzip.cli.terminal.figures import (
    printable,
    printable_name,
    show_bytes,
    show_count,
    show_seconds,
)
from s3unzip.explanations import advise, describe, explain
from s3unzip.model import Verdict
from s3unzip.settling.next_step import in_environment, next_command

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TextIO

    from s3unzip.errors import Finding
    from s3unzip.model import Connections, Failure, NestedRun, Report

FAILURES_SHOWN = 5  # of each reason


def print_report(
    report: Report,
    stream: TextIO | None = None,
    *,
    environment: str | None = None,
    rates: bool = True,
    connections: Connections | None = None,
) -> None:
    """Print verdict, totals, reasons, the first failures, and what to do next.

    Args:
        report: of the run.
        stream: to print to; None: stderr.
        environment: of the run; None: this machine.
        rates: whether to print how much was done in a second.
        connections: how the run's stores are reached, or the environment.
    """
    out = stream or sys.stderr
    whence, where = printable(str(report.source)), printable(str(report.destination))
    out.write(f"{report.verdict}  {whence} -> {where}\n")
    if report.message:
        out.write(f"  {printable(report.message)}{_code(report.reason, report.offset)}\n")
    found_by = in_environment(environment, connections)
    if report.reason:
        out.write(f"  help: {advise(report.reason, report.run, found_by)}\n")
    if report.verdict is not Verdict.REJECTED:
        _print_totals(report, out, rates=rates)
    _print_failures(report, out, found_by)
    if report.after_success is not None:
        out.write(f"  {printable(str(report.after_success))}\n")
    out.write(f"  run {report.run}\n")
    following = next_command(report, environment, connections)
    if following:
        out.write(f"  next: {printable(following)}\n")


def print_test(report: Report, stream: TextIO | None = None) -> None:
    """Print whether the members of an archive are sound, and what is wrong with the others."""
    out = stream or sys.stderr
    sound = report.verdict is Verdict.COMPLETED
    out.write(f"{'SOUND' if sound else report.verdict.value}  {printable(str(report.source))}\n")
    if report.message:
        out.write(f"  {printable(report.message)}{_code(report.reason, report.offset)}\n")
    if report.reason:
        out.write(f"  help: {explain(report.reason).advice}\n")
    if report.verdict is not Verdict.REJECTED:
        seconds = show_seconds(max(report.finished - report.started, 1e-9))
        verbs = ("is" if report.extracted == 1 else "are", "is" if report.failed == 1 else "are")
        out.write(f"  {show_count(report.extracted, 'member')} {verbs[0]} sound, ")
        out.write(f"{report.failed:,} {verbs[1]} not; ")
        out.write(f"{show_bytes(report.bytes_out)} decoded in {seconds}\n")
    _print_failures(report, out)


def print_reasons(counts: Mapping[str, int], stream: TextIO | None = None) -> None:
    """Print how many members were refused for what, each with its explanation."""
    out = stream or sys.stderr
    for code, count in counts.items():
        out.write(f"{count:,} refused: {explain(code).sentence}{_code(code)}\n")
        out.write(f"  help: {explain(code).advice}\n")


def tell_finding(finding: Finding) -> str:
    """Return a finding as lines for a person: words, the code and place, what helps."""
    whose = f"{printable_name(finding.member)}: " if finding.member is not None else ""
    words = printable(describe(finding.code, finding.message))
    code = _code(finding.code, finding.offset)
    return f"{whose}{words}{code}\n  help: {explain(finding.code).advice}"


def _code(code: str | None, offset: int | None = None) -> str:
    where = f" at byte {offset:,}" if offset is not None else ""
    return f" ({code}{where})" if code else ""


def _print_totals(report: Report, out: TextIO, *, rates: bool) -> None:
    counts = [
        (report.extracted, "extracted"),
        (report.unchanged, "unchanged"),
        (report.failed, "failed"),
        (report.missing, "without outcome"),
        (report.excluded, "excluded"),
        (report.directories, "directory" if report.directories == 1 else "directories"),
    ]
    shown = ", ".join(f"{count:,} {name}" for count, name in counts if count)
    out.write(f"  {show_count(report.members, 'member')}: {shown or 'none'}\n")
    seconds = max(report.finished - report.started, 1e-9)
    done = report.extracted + report.unchanged
    out.write(f"  {show_bytes(report.bytes_in)} read, {show_bytes(report.bytes_out)} written")
    if rates:
        out.write(
            f" in {show_seconds(seconds)}: {done / seconds:,.0f} members/s, "
            f"{show_bytes(report.bytes_out / seconds)}/s"
        )
    out.write("\n")
    requests = report.requests
    retried = f", {requests.retries:,} retried" if requests.retries else ""
    slowed = f", {requests.throttled:,} throttled" if requests.throttled else ""
    out.write(
        f"  requests: {requests.get:,} GET, {requests.put:,} PUT, "
        f"{show_count(requests.part + requests.copy, 'part')}, "
        f"{requests.head + requests.list:,} HEAD and LIST{retried}{slowed}\n"
    )
    for code, count in report.warnings.items():
        sentence = explain(code).sentence
        out.write(f"  {count:,} with a warning: {sentence}{_code(code)}\n")


def _print_failures(report: Report, out: TextIO, where: str = "") -> None:
    if not report.failed:
        return
    by_reason: dict[str, list[Failure]] = {}
    for failure in report.failures:
        by_reason.setdefault(failure.reason, []).append(failure)
    for code, count in report.reasons.items():
        out.write(f"  {count:,} failed: {explain(code).sentence}{_code(code)}\n")
        out.write(f"    help: {advise(code, report.run, where)}\n")
        for failure in by_reason.get(code, [])[:FAILURES_SHOWN]:
            at = f" at byte {failure.offset:,}" if failure.offset is not None else ""
            out.write(f"    {printable_name(failure.key)}{at}: {printable(failure.message)}\n")
        more = count - FAILURES_SHOWN
        if more > 0:
            out.write(f"    and {more:,} more: s3unzip show {report.run} --failures{where}\n")


def print_nested(nested: NestedRun, stream: TextIO | None = None) -> None:
    """Print what became of an archive inside the archive."""
    out = stream or sys.stderr
    said = nested.message or ""
    if nested.reason:
        said = describe(nested.reason, nested.message) + _code(nested.reason)
    out.write(f"nested {nested.verdict or 'not extracted'}  {printable_name(nested.key)}\n")
    if said:
        out.write(f"  {printable(said)}\n")
    if nested.run is not None:
        out.write(f"  run {nested.run}\n")
