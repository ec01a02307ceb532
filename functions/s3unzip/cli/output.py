"""The report of a run, for people or as JSON, and findings of the directory, on stderr."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from s3unzip.cli.progress import RunDisplay
from s3unzip.cli.terminal import print_json
from s3unzip.explanations import advise, describe, explain
from s3unzip.figures import choose_form, show_bytes, show_count, show_seconds
from s3unzip.model import Location, Report, Request, Verdict
from s3unzip.planning.select import parse_template
from s3unzip.printable import printable, printable_name
from s3unzip.runs.records import PAGE
from s3unzip.settling.next_command import FAILURES_SHOWN, in_environment, next_command
from s3unzip.stores.locations import runs_home

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TextIO

    from s3unzip.context import Reached
    from s3unzip.errors import Finding
    from s3unzip.model import NestedRun
    from s3unzip.stores.config import StoreConfig

FOREIGN = re.compile(r"the first bytes look like (?!a ZIP archive|text|no format)(.+)")


def print_report(
    report: Report,
    stream: TextIO | None = None,
    *,
    environment: str | None = None,
    rates: bool = True,
    reached: Reached | None = None,
) -> None:
    """Print verdict, totals, reasons, the first failures, the page, and what to do next.

    Args:
        report: of the run.
        stream: None: standard error.
        environment: None for a run of this machine.
        rates: whether to print how much was done in a second.
        reached: how the run's stores are reached, or the environment.
    """
    out = stream or sys.stderr
    env_options = in_environment(environment, reached)
    _print_verdict(report, f"{report.verdict}  {report.source} -> {_folder_of(report)}", out)
    _print_advice(report, out, env_options)
    if report.verdict is not Verdict.REJECTED:
        _print_totals(report, out, rates=rates)
    print_failures(report, out, env_options)
    if report.after_success is not None:
        out.write(f"  {printable(str(report.after_success))}\n")
    if report.route is not None:
        out.write(f"  route {report.route.name}\n")
    out.write(f"  run {report.run}\n")
    page = Path(runs_home().key, "runs", report.run, PAGE)
    if not environment and page.is_file():
        out.write(f"  page {printable(str(page))}\n")
    command = next_command(report, environment, reached)
    if command:
        out.write(f"  next: {printable(command)}\n")


def _folder_of(report: Report) -> Location:
    """Return the folder or prefix of a run's members; of a refused archive there are none."""
    destination = report.destination
    if report.verdict is Verdict.REJECTED:
        return destination
    prefix = parse_template(Request(report.source, destination, report.options)).prefix
    return Location(destination.scheme, destination.bucket, prefix[: prefix.rfind("/") + 1])


def print_test(report: Report, out: TextIO) -> None:
    """Print whether the members of an archive are sound, and what is wrong with the others.

    A test keeps no run, so no command continues it.
    """
    _print_verdict(report, f"{_soundness(report)}  {report.source}", out)
    _print_advice(report, out, env_options=None)
    if report.verdict is not Verdict.REJECTED:
        seconds = max(report.finished - report.started, 1e-9)
        out.write(
            f"  {show_count(report.extracted, 'member')} "
            f"{choose_form(report.extracted, 'is', 'are')} sound, "
            f"{report.failed:,} {choose_form(report.failed, 'is', 'are')} not; "
            f"{show_bytes(report.bytes_out)} decoded in {show_seconds(seconds)}\n"
        )
    print_warnings(report.warnings, out)
    print_failures(report, out, env_options=None)


def _soundness(report: Report) -> str:
    """Return the verdict of a test."""
    match report.verdict:
        case Verdict.COMPLETED:
            return "SOUND"
        case Verdict.COMPLETED_WITH_ERRORS:
            return "NOT SOUND"
    return report.verdict.value


def _print_verdict(report: Report, title: str, out: TextIO) -> None:
    """Print how a run ended, and why."""
    out.write(f"{printable(title)}\n")
    if report.message:
        out.write(f"  {printable(report.message)}{_code(report.reason, report.offset)}\n")


def _print_advice(report: Report, out: TextIO, env_options: str | None) -> None:
    """Print what helps against the reason of a run's end."""
    if report.reason:
        advice = _advise_foreign(report.message)
        out.write(f"  help: {advice or _advise(report.reason, report.run, env_options)}\n")


def _advise(code: str, run: str = "", env_options: str | None = None) -> str:
    """Return the advice about a code; `env_options` is None where there is no run to continue."""
    if env_options is None:
        return re.sub(r": s3unzip resume RUN( --failed)?", "", explain(code).advice)
    return advise(code, run, env_options)


def print_reasons(refused: Mapping[str, int], warnings: Mapping[str, int]) -> None:
    """Print what a directory alone shows: warnings, and why members are refused; by code."""
    for code, count in warnings.items():
        sys.stderr.write(f"{count:,} with a warning: {explain(code).sentence}{_code(code)}\n")
    for code, count in refused.items():
        sys.stderr.write(
            f"{count:,} refused: {explain(code).sentence}{_code(code)}\n  help: {_advise(code)}\n"
        )


def describe_finding(finding: Finding) -> str:
    """Return a finding as lines for a person: the text, the code and the offset, what helps."""
    member = ""
    if finding.member is not None:
        member = f"{printable_name(finding.member)}: "
    text = printable(describe(finding.code, finding.message))
    code = _code(finding.code, finding.offset)
    return (
        f"{member}{text}{code}\n  help: {_advise_foreign(finding.message) or _advise(finding.code)}"
    )


def _advise_foreign(message: str | None) -> str | None:
    """Return the advice about a file whose first bytes are of another format; None: of none."""
    match = FOREIGN.search(message or "")
    if match is None:
        return None
    return f"This looks like {match[1]}; s3unzip reads ZIP archives only. Check what SRC names."


def _code(code: str | None, offset: int | None = None) -> str:
    """Return a code and where it was found, as the end of a message; without a code nothing."""
    if not code:
        return ""
    return f" ({code}{_at_byte(offset)})"


def _at_byte(offset: int | None) -> str:
    if offset is None:
        return ""
    return f" at byte {offset:,}"


def _print_totals(report: Report, out: TextIO, *, rates: bool) -> None:
    """Print how much was done, by how many requests, and the warnings."""
    counts = [
        (report.extracted, "extracted"),
        (report.unchanged, "unchanged"),
        (report.failed, "failed"),
        (report.missing, "without outcome"),
        (report.excluded, "excluded"),
        (report.directories, choose_form(report.directories, "directory", "directories")),
    ]
    shown = ", ".join(f"{count:,} {name}" for count, name in counts if count)
    speed = ""
    if rates:
        speed = _describe_speed(report)
    out.write(
        f"  {show_count(report.members, 'member')}: {shown or 'none'}\n"
        f"  {show_bytes(report.bytes_in)} read, {show_bytes(report.bytes_out)} written{speed}\n"
    )
    if not (report.source.store.is_local and report.destination.store.is_local):
        requests = report.requests
        repeats = [(requests.retries, "retried"), (requests.throttled, "throttled")]
        repeated = "".join(f", {count:,} {name}" for count, name in repeats if count)
        out.write(
            f"  requests: {requests.get:,} GET, {requests.put:,} PUT, "
            f"{show_count(requests.part + requests.copy, 'part')}, "
            f"{requests.head + requests.list:,} HEAD and LIST{repeated}\n"
        )
    print_warnings(report.warnings, out)


def _describe_speed(report: Report) -> str:
    """Return how long a run took, its rates and its workers."""
    seconds = max(report.finished - report.started, 1e-9)
    rates = [f"{show_bytes(report.bytes_out / seconds)}/s"]
    members = report.extracted + report.unchanged
    if members >= seconds:  # for a single huge member the rate would be 0
        rates.insert(0, f"{members / seconds:,.0f} members/s")
    workers = ""
    if report.workers:
        workers = f" by {show_count(report.workers, 'worker')}"
    return f" in {show_seconds(seconds)}: {', '.join(rates)}{workers}"


def print_warnings(counts: Mapping[str, int], out: TextIO) -> None:
    """Print how often a warning was found."""
    out.writelines(
        f"  {count:,} with a warning: {explain(code).sentence}{_code(code)}\n"
        for code, count in counts.items()
    )


def print_failures(report: Report, out: TextIO, env_options: str | None) -> None:
    """Print the reasons, each with its first members."""
    if not report.failed:
        return
    for code, count in report.reasons.items():
        advice = _advise(code, report.run, env_options)
        out.write(f"  {count:,} failed: {explain(code).sentence}{_code(code)}\n")
        out.write(f"    help: {advice}\n")
        failures = [failure for failure in report.failures if failure.reason == code]
        for failure in failures[:FAILURES_SHOWN]:
            key = printable_name(failure.key) + _at_byte(failure.offset)
            out.write(f"    {key}: {printable(failure.message)}\n")
        if count > FAILURES_SHOWN:
            command = ""
            if env_options is not None:
                command = f": s3unzip show {report.run} --failures{env_options}"
            out.write(f"    and {count - FAILURES_SHOWN:,} more{command}\n")


class RunOutput(RunDisplay):
    """What ``run`` shows: progress, each report, what became of archives inside the archive."""

    def __init__(self, *, quiet: bool, json: bool) -> None:
        super().__init__(quiet=quiet)
        self.nested_runs: list[NestedRun] = []
        self.reached: Reached | None = None  # for the command that starts a run again
        self._json = json

    def reported(self, report: Report) -> None:
        """Print the report instead of the progress; a quiet run prints a bad verdict only."""
        self.stop()
        if self._json:
            print_json(report)
        if not self._quiet:
            print_report(report, reached=self.reached)
        elif report.verdict.exit_code:
            title = f"{report.verdict}  {report.source} -> {_folder_of(report)}"
            _print_verdict(report, title, sys.stderr)

    def nested(self, run: NestedRun) -> None:
        """Print what became of an archive inside the archive."""
        self.nested_runs.append(run)
        if self._json:
            print_json(run)
        if self._quiet and run.is_right:
            return
        message = run.message or ""
        if run.reason:
            message = describe(run.reason, run.message) + _code(run.reason)
        sys.stderr.write(f"nested {run.verdict or 'not extracted'}  {printable_name(run.key)}\n")
        if message:
            sys.stderr.write(f"  {printable(message)}\n")
        if run.run is not None:
            sys.stderr.write(f"  run {run.run}\n")


def shown_connections(config: StoreConfig, *places: Location) -> StoreConfig:
    """Return the options that a command needs to reach `places` again, as short as it can be.

    What comes from the environment's variables is not repeated, nor are options of S3 where no
    place is in S3.
    """
    if not any(location.store.takes_s3_options for location in places):
        return type(config)(other_hosts=config.other_hosts)
    return config.recorded().without_environment()
