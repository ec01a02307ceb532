"""How commands print the reports of runs, and the findings about an archive's directory."""

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TextIO

from s3unzip.cli.progress import RunDisplay
from s3unzip.cli.terminal import confirm, print_json
from s3unzip.errors import AccessDeniedError, Finding
from s3unzip.explanations import advise, describe, explain
from s3unzip.model import Location, NestedRun, Report, Verdict
from s3unzip.planning.select import members_folder
from s3unzip.printable import (
    choose_form,
    printable,
    printable_name,
    show_bytes,
    show_count,
    show_seconds,
)
from s3unzip.runs.records import PAGE
from s3unzip.settling.next_command import FAILURES_SHOWN, environment_options, next_command
from s3unzip.stores.config import StoreConfig, runs_home
from s3unzip.stores.ports import StoredObject

# Matches a message that names another file format; its only group captures that format.
OTHER_FORMAT = re.compile(r"the first bytes look like (?!a ZIP archive|text|no format)(.+)")
EXTRA_SHOWN = 10  # number of objects to list before asking whether to delete them
SOUNDNESS = {Verdict.COMPLETED: "SOUND", Verdict.COMPLETED_WITH_ERRORS: "NOT SOUND"}


def print_report(
    report: Report,
    out: TextIO,
    *,
    environment: str | None = None,
    show_rates: bool = True,
    connections: StoreConfig | None = None,
) -> None:
    """Print the verdict, the totals, the reasons for failures, the page path and the next command.

    Args:
        report: the report of the run.
        out: the stream to print to.
        environment: the environment of the run. None means this machine.
        show_rates: whether to print the duration, and members and bytes per second.
        connections: the options with which commands reach the run's stores or the environment.
    """
    env_options = environment_options(environment, connections)
    _print_verdict(report, _title(report), out)
    _print_advice(report, out, env_options)
    if report.verdict is not Verdict.REJECTED:
        _print_totals(report, out, show_rates=show_rates)
    print_failures(report, out, env_options)
    if report.after_success is not None:
        out.write(f"  {printable(str(report.after_success))}\n")
    if report.route is not None:
        out.write(f"  route {report.route.name}\n")
    out.write(f"  run {report.run}\n")
    page = Path(runs_home().key, "runs", report.run, PAGE)
    if not environment and page.is_file():
        out.write(f"  page {printable(str(page))}\n")
    command = next_command(report, environment, connections)
    if command:
        out.write(f"  next: {printable(command)}\n")


def _title(report: Report) -> str:
    return f"{report.verdict}  {report.source} -> {members_folder(report)}"


def print_test(report: Report, out: TextIO) -> None:
    """Print whether all members of an archive are sound and, if not, why.

    A test is not recorded as a run, so the advice does not include a command to continue it.
    """
    _print_verdict(
        report, f"{SOUNDNESS.get(report.verdict, report.verdict.value)}  {report.source}", out
    )
    _print_advice(report, out, env_options=None)
    if report.verdict is not Verdict.REJECTED:
        out.write(
            f"  {show_count(report.extracted, 'member')} "
            f"{choose_form(report.extracted, 'is', 'are')} sound, "
            f"{report.failed:,} {choose_form(report.failed, 'is', 'are')} not; "
            f"{show_bytes(report.bytes_out)} decoded in "
            f"{show_seconds(max(0.0, report.finished - report.started))}\n"
        )
    _print_warnings(report.warnings, out, indent="  ")
    print_failures(report, out, env_options=None)


def _print_verdict(report: Report, title: str, out: TextIO) -> None:
    out.write(f"{printable(title)}\n")
    if report.message:
        out.write(f"  {printable(report.message)}{_in_brackets(report.reason, report.offset)}\n")


def _print_advice(report: Report, out: TextIO, env_options: str | None) -> None:
    if report.reason:
        out.write(
            f"  help: {_advise(report.reason, report.run, env_options, message=report.message)}\n"
        )


def _advise(
    code: str, run: str = "", env_options: str | None = None, *, message: str | None = None
) -> str:
    """Return the advice for a code.

    Args:
        code: the code of a failed check or of a fault.
        run: the id of the run.
        env_options: the options that select the run's environment. None means that there is no run
            to continue, so the advice does not contain `s3unzip resume`.
        message: the message of a finding. If a file is not an archive, the message can name the
            format of the file.
    """
    match = OTHER_FORMAT.search(message or "")
    if match is not None:
        return f"This looks like {match[1]}; s3unzip reads ZIP archives only. Check what SRC names."
    if env_options is None:
        return re.sub(r": s3unzip resume RUN( --failed)?", "", advise(code))
    return advise(code, run, env_options)


def print_findings(refused: Mapping[str, int], warnings: Mapping[str, int]) -> None:
    """Print the warnings about a directory, and why members are refused.

    Both arguments map the code of a check to the number of members.
    """
    _print_warnings(warnings, sys.stderr)
    for code, count in refused.items():
        sys.stderr.write(
            f"{count:,} refused: {explain(code)}{_in_brackets(code)}\n  help: {_advise(code)}\n"
        )


def describe_finding(finding: Finding) -> str:
    """Return a finding with its code and offset, and a second line with advice."""
    member = ""
    if finding.member is not None:
        member = f"{printable_name(finding.member)}: "
    return (
        f"{member}{printable(describe(finding.code, finding.message))}"
        f"{_in_brackets(finding.code, finding.offset)}\n"
        f"  help: {_advise(finding.code, message=finding.message)}"
    )


def _in_brackets(code: str | None, offset: int | None = None) -> str:
    """Return a code and an offset in brackets, for the end of a message; "" without a code."""
    if not code:
        return ""
    return f" ({code}{_at_byte(offset)})"


def _at_byte(offset: int | None) -> str:
    if offset is None:
        return ""
    return f" at byte {offset:,}"


def _print_totals(report: Report, out: TextIO, *, show_rates: bool) -> None:
    counts = [
        (report.extracted, "extracted"),
        (report.unchanged, "unchanged"),
        (report.failed, "failed"),
        (report.missing, "without an outcome"),
        (report.excluded, "excluded"),
        (report.directories, choose_form(report.directories, "directory", "directories")),
    ]
    outcomes = ", ".join(f"{count:,} {name}" for count, name in counts if count)
    speed = ""
    if show_rates:
        speed = _describe_speed(report)
    out.write(
        f"  {show_count(report.members, 'member')}: {outcomes or 'none'}\n"
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
    _print_warnings(report.warnings, out, indent="  ")


def _describe_speed(report: Report) -> str:
    seconds = report.finished - report.started
    if seconds <= 0:  # the clock has not advanced, or was set back
        return ""
    rates = [f"{show_bytes(report.bytes_out / seconds)}/s"]
    members = report.extracted + report.unchanged
    if members >= seconds:  # a rate below one member per second would be shown as 0
        rates.insert(0, f"{members / seconds:,.0f} members/s")
    workers = ""
    if report.workers:
        workers = f" by {show_count(report.workers, 'worker')}"
    return f" in {show_seconds(seconds)}: {', '.join(rates)}{workers}"


def _print_warnings(counts: Mapping[str, int], out: TextIO, indent: str = "") -> None:
    out.writelines(
        f"{indent}{count:,} with a warning: {explain(code)}{_in_brackets(code)}\n"
        for code, count in counts.items()
    )


def print_failures(report: Report, out: TextIO, env_options: str | None) -> None:
    """Print the reasons for failures, each with advice and the first members that it affects.

    `env_options` select the environment of the run. None means that there is no run to continue.
    """
    if not report.failed:
        return
    for code, count in report.reasons.items():
        out.write(
            f"  {count:,} failed: {explain(code)}{_in_brackets(code)}\n"
            f"    help: {_advise(code, report.run, env_options)}\n"
        )
        failures = [failure for failure in report.failures if failure.reason == code]
        out.writelines(
            f"    {printable_name(failure.key)}{_at_byte(failure.offset)}: "
            f"{printable(failure.message)}\n"
            for failure in failures[:FAILURES_SHOWN]
        )
        if count > FAILURES_SHOWN:
            command = ""
            if env_options is not None:
                command = f": s3unzip show {report.run} --failures{env_options}"
            out.write(f"    and {count - FAILURES_SHOWN:,} more{command}\n")


class RunOutput(RunDisplay):
    """Shows the run of one archive: its progress, its report, and the results of nested archives.

    With ``--delete-extra``, `RunOutput` also decides whether to delete the objects that are not
    members.

    Args:
        connections: the options with which the printed next command reaches the run's stores.
        show_rates: whether to print the rates of the run.
        max_deleted: maximum number of objects that ``--delete-extra`` may delete.
    """

    def __init__(
        self,
        *,
        quiet: bool,
        json: bool,
        connections: StoreConfig | None,
        show_rates: bool = True,
        max_deleted: int = 0,
    ) -> None:
        super().__init__(quiet=quiet)
        self.objection = ""  # why extra objects are kept
        self._json = json
        self._connections = connections
        self._show_rates = show_rates
        self._max_deleted = max_deleted

    def confirm_deletion(self, extra: Sequence[StoredObject]) -> bool:
        """Return whether `extra` may be deleted; if not, print the reason.

        At most ``--delete-extra`` objects may be deleted. On a terminal, the user must also agree.
        """
        self.stop()
        count = show_count(len(extra), "object")
        size = show_bytes(sum(listed.size for listed in extra))
        predicate = choose_form(len(extra), "is not a member", "are not members")
        summary = f"{count} ({size}) {predicate} of the archive"
        if len(extra) > self._max_deleted:
            self.objection = (
                f"{summary}; nothing is deleted, because --delete-extra allows only "
                f"{self._max_deleted:,}"
            )
        elif sys.stdin.isatty():
            lines = [f"  {printable_name(listed.key)}" for listed in extra[:EXTRA_SHOWN]]
            if len(extra) > EXTRA_SHOWN:
                lines.append(f"  and {len(extra) - EXTRA_SHOWN:,} more; --dry-run lists them all")
            sys.stderr.write("\n".join((f"{summary}:", *lines, "")))
            if not confirm("Delete them?"):
                self.objection = "nothing is deleted"
        if self.objection:
            sys.stderr.write(f"{self.objection}\n")
        elif not self._quiet:
            sys.stderr.write(f"deleting {count} ({size})\n")
        return not self.objection

    def reported(self, report: Report) -> None:
        """Replace the progress with the report; if quiet, print only a failed run's verdict."""
        self.stop()
        if self._json:
            print_json(report)
        if not self._quiet:
            print_report(
                report,
                sys.stderr,
                show_rates=self._show_rates,
                connections=self._connections,
            )
        else:
            print_problem(report)

    def nested(self, run: NestedRun) -> None:
        """Print the result of a nested archive; if quiet, print it only if the archive failed."""
        if self._json:
            print_json(run)
        if run.is_failure or not self._quiet:
            sys.stderr.write(f"{describe_nested(run)}\n")


def print_problem(report: Report) -> None:
    """If the exit code of a run is not 0, print why, without totals or advice."""
    if exit_code(report):
        _print_verdict(report, _title(report), sys.stderr)
        if report.archive_left:  # print why the archive was not deleted or tagged
            sys.stderr.write(f"  {printable(str(report.after_success))}\n")


def describe_nested(run: NestedRun) -> str:
    """Return the result of a nested archive: its verdict, key, reason and run id."""
    lines = [f"nested {run.verdict or 'not extracted'}  {printable_name(run.key)}"]
    if run.message:
        lines.append(f"  {printable(run.message)}{_in_brackets(run.reason)}")
    if run.run is not None:
        lines.append(f"  run {run.run}")
    return "\n".join(lines)


def exit_code(report: Report, nested: Sequence[NestedRun] = ()) -> int:
    """Return the exit code for the run of an archive and the runs of its nested archives."""
    if report.verdict.exit_code:
        return report.verdict.exit_code
    if any(run.is_failure for run in nested):
        return 1
    if report.archive_left:  # `--after-success` failed, usually because the store refused it
        return AccessDeniedError.exit_code
    return 0


def shown_connections(config: StoreConfig, *locations: Location) -> StoreConfig:
    """Return the options that a printed command needs to reach `locations` again.

    Options that environment variables set, and URLs that contain secrets, are left out. If no
    location is in S3, all S3 options are left out.
    """
    if not any(location.store.takes_s3_options for location in locations):
        return StoreConfig(other_hosts=config.other_hosts)  # the only option that web servers use
    return config.recorded().for_printed_commands()
