"""What commands print of runs: reports and tables on stderr or stdout, JSON on stdout."""

from __future__ import annotations

import re
import sys
import time
from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from msgspec import Struct

from s3unzip import Progress
from s3unzip.api.progress import BatchProgress
from s3unzip.cli.figures import (
    print_json,
    printable,
    printable_name,
    show_bytes,
    show_count,
    show_seconds,
    warn,
    write_table,
)
from s3unzip.cli.progress import Figures, RunDisplay
from s3unzip.explanations import advise, describe, explain
from s3unzip.model import Location, Outcome, Request, Verdict
from s3unzip.planning.keys import parse_template
from s3unzip.settling.next_step import in_environment, next_command

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import TextIO

    from s3unzip.context import Reached
    from s3unzip.errors import Finding
    from s3unzip.local.dry_run import Decision
    from s3unzip.model import ArchiveEnd, Batch, Failure, NestedRun, Report
    from s3unzip.stores.factory import StoreConfig
    from s3unzip.stores.ports import ListedObject

EXTRA_SHOWN = 10  # keys before the question
TITLES = ("STARTED (UTC)", "STATE", "TOOK", "MEMBERS", "FAILED", "RUN", "SOURCE -> DESTINATION")
RIGHT = {"TOOK", "MEMBERS", "FAILED"}
ARCHIVE_TITLES = ("STATE", "MEMBERS", "FAILED", "RUN", "SOURCE")
FAILURES_SHOWN = 5  # of each reason


def print_report(
    report: Report,
    stream: TextIO | None = None,
    *,
    environment: str | None = None,
    rates: bool = True,
    reached: Reached | None = None,
) -> None:
    """Print verdict, totals, reasons, the first failures, and what to do next.

    Args:
        report: of the run.
        stream: to print to; None: stderr.
        environment: of the run; None: this machine.
        rates: whether to print how much was done in a second.
        reached: how the run's stores are reached, or the environment.
    """
    out = stream or sys.stderr
    whence, where = printable(str(report.source)), printable(str(members_place(report)))
    out.write(f"{report.verdict}  {whence} -> {where}\n")
    if report.message:
        out.write(f"  {printable(report.message)}{_code(report.reason, report.offset)}\n")
    found_by = in_environment(environment, reached)
    if report.reason:
        out.write(f"  help: {advise(report.reason, report.run, found_by)}\n")
    if report.verdict is not Verdict.REJECTED:
        _print_totals(report, out, rates=rates)
    _print_failures(report, out, found_by)
    if report.after_success is not None:
        out.write(f"  {printable(str(report.after_success))}\n")
    out.write(f"  run {report.run}\n")
    following = next_command(report, environment, reached)
    if following:
        out.write(f"  next: {printable(following)}\n")


def members_place(report: Report) -> Location:
    """Return the folder or prefix in which the members of a run are."""
    place = report.destination
    if report.verdict is Verdict.REJECTED:
        return place
    prefix = parse_template(Request(report.source, place, report.options)).prefix
    return Location(place.scheme, place.bucket, prefix[: prefix.rfind("/") + 1])


def print_test(report: Report, stream: TextIO | None = None) -> None:
    """Print whether the members of an archive are sound, and what is wrong with the others."""
    out = stream or sys.stderr
    sound = report.verdict is Verdict.COMPLETED
    out.write(f"{'SOUND' if sound else report.verdict.value}  {printable(str(report.source))}\n")
    if report.message:
        out.write(f"  {printable(report.message)}{_code(report.reason, report.offset)}\n")
    if report.reason:
        out.write(f"  help: {_advise_without_run(report.reason)}\n")
    if report.verdict is not Verdict.REJECTED:
        seconds = show_seconds(max(report.finished - report.started, 1e-9))
        verbs = ("is" if report.extracted == 1 else "are", "is" if report.failed == 1 else "are")
        out.write(f"  {show_count(report.extracted, 'member')} {verbs[0]} sound, ")
        out.write(f"{report.failed:,} {verbs[1]} not; ")
        out.write(f"{show_bytes(report.bytes_out)} decoded in {seconds}\n")
    _print_failures(report, out, None)


def _advise_without_run(code: str) -> str:
    """Return the advice about a code where there is no run to go on with."""
    return re.sub(r": s3unzip resume RUN( --failed)?", "", explain(code).advice)


def print_reasons(counts: Mapping[str, int], stream: TextIO | None = None) -> None:
    """Print how many members were refused for what, each with its explanation."""
    out = stream or sys.stderr
    for code, count in counts.items():
        out.write(f"{count:,} refused: {explain(code).sentence}{_code(code)}\n")
        out.write(f"  help: {_advise_without_run(code)}\n")


def tell_finding(finding: Finding) -> str:
    """Return a finding as lines for a person: words, the code and place, what helps."""
    whose = f"{printable_name(finding.member)}: " if finding.member is not None else ""
    words = printable(describe(finding.code, finding.message))
    code = _code(finding.code, finding.offset)
    return f"{whose}{words}{code}\n  help: {_advise_without_run(finding.code)}"


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


def _print_failures(report: Report, out: TextIO, where: str | None) -> None:
    """Print the reasons, each with its first members.

    Args:
        report: of the run.
        out: to print to.
        where: options that find the run's environment; None: there is no run to go on with.
    """
    if not report.failed:
        return
    by_reason: dict[str, list[Failure]] = {}
    for failure in report.failures:
        by_reason.setdefault(failure.reason, []).append(failure)
    for code, count in report.reasons.items():
        out.write(f"  {count:,} failed: {explain(code).sentence}{_code(code)}\n")
        known = where is not None
        advice = advise(code, report.run, where or "") if known else _advise_without_run(code)
        out.write(f"    help: {advice}\n")
        for failure in by_reason.get(code, [])[:FAILURES_SHOWN]:
            out.write(f"    {_failure_line(failure.key, failure.offset, failure.message)}\n")
        more = count - FAILURES_SHOWN
        if more > 0:
            show = f": s3unzip show {report.run} --failures{where}" if known else ""
            out.write(f"    and {more:,} more{show}\n")


def _failure_line(key: str, offset: int | None, message: str) -> str:
    at = f" at byte {offset:,}" if offset is not None else ""
    return f"{printable_name(key)}{at}: {printable(message)}"


def print_failed(outcome: Outcome) -> None:
    """Print a line for a failed member."""
    code = outcome.reason or "unknown"
    words = describe(code, outcome.message)
    sys.stdout.write(f"{_failure_line(outcome.key, None, words)}{_code(code)}\n")


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


class FailedMember(Struct, frozen=True):
    """A line of ``s3unzip show --failures``."""

    task: str  # that the member failed in; "index": the plan
    outcome: Outcome


class Resumed(Struct, frozen=True):
    """What ``s3unzip resume --env`` did."""

    run: str
    environment: str
    tasks: int | None = None  # with --failed; 0: no member failed, nothing was started


class Aborted(Struct, frozen=True):
    """What ``s3unzip abort`` did."""

    run: str
    environment: str | None  # None: the run is one of this machine
    stopped: bool  # whether an execution was running
    uploads: int  # incomplete uploads that were dropped


class ListedRun(Struct, frozen=True, omit_defaults=True):
    """One line of ``s3unzip runs``."""

    run: str
    state: str  # the verdict; RUNNING, WAITING, STOPPED or UNFINISHED where there is none
    started: float  # Unix seconds
    seconds: float | None = None
    source: str = ""
    destination: str = ""
    members: int = 0
    extracted: int = 0
    unchanged: int = 0
    failed: int = 0


class RunProgress(Struct, frozen=True, omit_defaults=True):
    """A line of ``s3unzip watch --json``, printed when a figure changes; the report is the last."""

    run: str
    state: str = ""  # of the execution; empty on one machine
    members: int | None = None  # that the run selected; None: its plan is still made
    extracted: int = 0  # by tasks that ended
    unchanged: int = 0  # likewise
    failed: int = 0  # likewise
    bytes_written: int = 0  # likewise
    tasks: int = 0  # of the first round
    tasks_done: int = 0
    rounds: int = 0
    running: int | None = None  # tasks of the Map at work
    waiting: int | None = None  # likewise
    lost: int | None = None  # likewise: without a result
    throttled: int = 0  # requests
    retries: int = 0  # requests
    first_object: float | None = None  # Unix seconds


def print_runs(runs: Iterable[ListedRun]) -> None:
    """Print a header and a line for each run, columns aligned; the longest column is the last."""
    rows = [_cells(run) for run in runs]
    if not rows:
        sys.stderr.write("no runs yet: s3unzip run SRC DEST begins one\n")
        return
    write_table([TITLES, *rows], sys.stdout, RIGHT)


def print_decisions(decisions: Iterable[Decision], *, json: bool) -> int:
    """Print what a run would do; return 1 if it could not do all of it."""
    counts: Counter[str] = Counter()
    for one in decisions:
        counts[one.action] += 1
        if json:
            print_json(one)
            continue
        why = f"  {printable(one.message or '')} ({one.reason})" if one.message else ""
        sys.stdout.write(f"{one.action:9}  {one.size:12,}  {printable_name(one.key)}{why}\n")
    shown = ", ".join(f"{count:,} {action}" for action, count in counts.items())
    sys.stderr.write(f"dry run, nothing is written: {shown or 'no members'}\n")
    return 1 if counts["fail"] or counts["refuse"] else 0


def _cells(run: ListedRun) -> tuple[str, ...]:
    when = datetime.fromtimestamp(run.started, UTC)
    ends = f"{run.source} -> {run.destination}" if run.source else ""
    done = run.seconds is not None
    return (
        f"{when:%Y-%m-%d %H:%M}",
        run.state,
        show_seconds(run.seconds) if run.seconds is not None else "",
        f"{run.members:,}" if done else "",
        f"{run.failed:,}" if done else "",
        run.run,
        printable(ends),
    )


class RunOutput(RunDisplay, Progress):
    """What a run shows: live progress, its report, what became of archives inside the archive."""

    def __init__(self, *, quiet: bool, json: bool) -> None:
        super().__init__(quiet=quiet)
        self.nested_runs: list[NestedRun] = []
        self.reached: Reached | None = None  # for the command that starts a run again
        self._json = json

    def reported(self, report: Report) -> None:
        """Print the report instead of the progress."""
        self.stop()
        if self._json:
            print_json(report)
        if not self._quiet:
            print_report(report, reached=self.reached)

    def nested(self, run: NestedRun) -> None:
        """Print what became of an archive inside the archive."""
        self.nested_runs.append(run)
        if self._json:
            print_json(run)
        if not self._quiet:
            print_nested(run)


class BatchOutput(RunDisplay, BatchProgress):
    """Shows how many archives have ended, the members and bytes of all, and the end of each."""

    def __init__(self, *, quiet: bool, json: bool) -> None:
        super().__init__(quiet=quiet)
        self._json = json
        self._archives = 0
        self._ended_archives = 0

    def found(self, archives: int, size: int) -> None:  # noqa: ARG002 - shown as archives
        """Show the work ahead."""
        self._archives = archives
        self._since = time.monotonic()
        self._start()

    def figures(self) -> Figures:
        """Return what is known now."""
        with self._lock:
            counts = dict(self._counts)
        done = sum(counts.get(name, 0) for name in ("extracted", "unchanged", "failed"))
        seconds = max(time.monotonic() - self._since, 1e-3)
        written = counts.get("bytes_written", 0)
        return Figures(
            f"{self._ended_archives:,}/{self._archives:,} archives",
            self._ended_archives / max(1, self._archives),
            f"{done:,} members",
            f"{counts.get('failed', 0):,} failed",
            show_bytes(written),
            f"{done / seconds:,.0f} members/s, {show_bytes(written / seconds)}/s",
        )

    def ended(self, end: ArchiveEnd) -> None:
        """Count an archive; say what is wrong with one that ended without a report."""
        self._ended_archives += 1
        if end.error is not None:
            self.say(_name_once(end.source, end.error))

    def print(self, batch: Batch, stores: StoreConfig) -> None:
        """Print the end of all archives: a table and what is to do next, or one JSON object."""
        self.stop()
        for end in batch.archives:
            for sentence in end.warnings:
                warn(f"{end.source}: {sentence}")
        if self._json:
            print_json(batch)
        if not self._quiet:
            print_batch(batch, stores)


def print_batch(batch: Batch, stores: StoreConfig) -> None:
    """Print a line for each archive, why members of some failed, then the sums.

    Args:
        batch: how the archives ended.
        stores: how they were reached.
    """
    from s3unzip.cli.run import shown_of

    write_table([ARCHIVE_TITLES, *(_archive_cells(end) for end in batch.archives)], sys.stderr)
    for report in (end.report for end in batch.archives if end.report is not None):
        following = next_command(report, None, shown_of(report, stores))
        if report.failed or following:
            sys.stderr.write(f"{printable(str(report.source))}\n")
            _print_failures(report, sys.stderr, "")
        if following:
            sys.stderr.write(f"  next: {printable(following)}\n")
    reports = [end.report for end in batch.archives if end.report is not None]
    done = sum(report.extracted + report.unchanged for report in reports)
    failed = sum(report.failed + report.missing for report in reports)
    right = sum(end.exit_code == 0 for end in batch.archives)
    size = show_bytes(sum(report.bytes_out for report in reports))
    sys.stderr.write(
        f"{right:,} of {show_count(len(batch.archives), 'archive')} "
        f"{'is' if len(batch.archives) == 1 else 'are'} extracted: "
        f"{show_count(done, 'member')}, {size}; {show_count(failed, 'member')} failed\n"
    )


def _name_once(source: str, error: str) -> str:
    """Return an error with the archive that it is about; most of them name it themselves."""
    return error if error.startswith(f"{source}:") else f"{source}: {error}"


def _archive_cells(end: ArchiveEnd) -> tuple[str, ...]:
    report = end.report
    if report is None:
        return ("ERROR", "", "", "", printable(_name_once(end.source, end.error or "")))
    count = f"{report.extracted + report.unchanged:,}"
    failed = f"{report.failed + report.missing:,}"
    why = f": {printable(report.message)}" if report.message else ""
    return (report.verdict.value, count, failed, report.run, printable(end.source) + why)


class Question:
    """Decides about what is no member, on a terminal by asking; `kept`: whether any of it stays."""

    def __init__(
        self,
        max_deleted: int,
        stop_display: Callable[[], object],
        *,
        quiet: bool,
    ) -> None:
        self.kept = False
        self._max_deleted = max_deleted
        self._stop_display = stop_display
        self._quiet = quiet

    def __call__(self, found: Sequence[ListedObject]) -> bool:
        """Return whether to delete `found`; say on stderr what becomes of it."""
        self._stop_display()
        noun = "object" if len(found) == 1 else "objects"
        size = show_bytes(sum(one.size for one in found))
        verb = "is no member" if len(found) == 1 else "are no members"
        what = f"{len(found):,} {noun} ({size}) {verb} of the archive"
        if len(found) > self._max_deleted:
            limit = f"--delete-extra is {self._max_deleted:,}"
            return self._keep(f"{what}; nothing is deleted, because {limit}")
        if sys.stdin.isatty() and not self._ask(found, what):
            return self._keep("nothing is deleted")
        if not self._quiet:
            sys.stderr.write(f"deleting {len(found):,} {noun} ({size})\n")
        return True

    def _keep(self, text: str) -> bool:
        sys.stderr.write(f"{text}\n")
        self.kept = True
        return False

    def _ask(self, found: Sequence[ListedObject], what: str) -> bool:
        sys.stderr.write(f"{what}:\n")
        sys.stderr.writelines(f"  {printable_name(one.key)}\n" for one in found[:EXTRA_SHOWN])
        if len(found) > EXTRA_SHOWN:
            sys.stderr.write(f"  and {len(found) - EXTRA_SHOWN:,} more; --dry-run lists them all\n")
        sys.stderr.write("Delete them? [y/N] ")
        sys.stderr.flush()
        return sys.stdin.readline().strip().lower() in {"y", "yes"}
