"""Commands on runs: ``runs``, ``show``, ``watch``, ``resume``, ``abort``.

The runs are this machine's, or those of a deployed environment.
"""

import sys
import time
import webbrowser
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import click
from click.core import ParameterSource
from msgspec import Struct, convert
from msgspec.structs import replace

from s3unzip.cli.arguments import Arguments
from s3unzip.cli.commands import PLACES, SERVER, command
from s3unzip.cli.output import print_report
from s3unzip.cli.printing import print_json, warn, write_table
from s3unzip.cli.progress import RunDisplay, failed_line
from s3unzip.context import Context
from s3unzip.errors import NotFoundError, ServiceFaultError, UnreadableRecordError, UsageError
from s3unzip.figures import show_count, show_seconds, show_time
from s3unzip.local.locking import LOCK, is_at_work, known_runs
from s3unzip.model import Outcome, PlanSummary, Report, Status, Stop, Verdict, run_of_execution
from s3unzip.options import read_options
from s3unzip.printable import printable
from s3unzip.runs.progress import RunSnapshot, RunWatcher
from s3unzip.runs.records import PAGE, Items, RunRecords, pick_run
from s3unzip.runs.step import STOPPED, Step
from s3unzip.stores.clock import LocalClock
from s3unzip.stores.config import StoreConfig
from s3unzip.stores.early_checks import check_buckets
from s3unzip.stores.files import PRIVATE, make_folders
from s3unzip.stores.locations import runs_home
from s3unzip.stores.open import open_stores

if TYPE_CHECKING:  # it loads botocore
    from s3unzip.operate.runs import DeployedRuns

TITLES = ("STARTED (UTC)", "STATE", "TOOK", "MEMBERS", "FAILED", "RUN", "SOURCE -> DESTINATION")
RIGHT = {"TOOK", "MEMBERS", "FAILED"}
LATEST = {"metavar": "[RUN]", "required": False, "default": "latest"}
# Of two options that exclude each other, the one that is typed counts.
RIVALS = {"unsigned": "request_payer", "request_payer": "unsigned"}
FIGURES = ("extracted", "unchanged", "failed", "bytes_written")
RUNNING = "RUNNING"  # states of runs
ENDED = "ENDED"
REPORT_SECONDS = 90.0  # an execution that failed gets its report a little later
BEGIN_SECONDS = 5.0  # between the trial of the destination, or the plan, and the first task
STOP_SECONDS = 60.0  # limit of waiting for a stopped run to end
FAULT_SECONDS = 120.0  # a service that does not answer so long ends the watch


class LocalRuns:
    """The runs that this machine did, with what `DeployedRuns` has; they have no executions."""

    environment = None
    found_by = ""

    def __init__(self, config: StoreConfig) -> None:
        self.work_location = config.work
        self.stores = open_stores(config)

    def recent(self, limit: int) -> Iterator[tuple[str, str, float]]:
        """Yield runs, the latest first."""
        for run in known_runs(self.work_location)[:limit]:
            touched = Path(self.work_location.key, "runs", run).stat().st_mtime
            yield run, "", touched

    def find(self, name: str) -> str:
        """Return the whole id of a run, by its beginning or by that of its archive's name."""
        known, name = known_runs(self.work_location), run_of_execution(name)
        if name in known:
            return name
        runs = filter(self._is_run, known)
        if name != "latest":
            return pick_run(name, runs, "here")
        for latest in runs:
            return latest
        raise NotFoundError("there are no runs yet: s3unzip run SRC DEST begins one")

    def _is_run(self, run: str) -> bool:
        """Return whether anything is on record of a run; it has its lock before its plan."""
        folder = Path(self.work_location.key, "runs", run)
        left = any(entry.name != LOCK for entry in folder.iterdir())
        return left or is_at_work(self.work_location.key, run)

    def records(self, run: str) -> RunRecords:
        """Return the records of one run."""
        return RunRecords.open(self.stores, run)

    def connections(self, run: str) -> StoreConfig:
        """Return how the run's stores were reached; a command about the run remembers it."""
        try:
            plan = self.records(run).find_plan()
        except UnreadableRecordError:
            plan = None
        return StoreConfig() if plan is None else convert(plan.stores, StoreConfig)

    def state(self, run: str) -> str:
        """Return `RUNNING` while a process plans the run or works on it; then `ENDED`."""
        return RUNNING if is_at_work(self.work_location.key, run) else ENDED

    def stop(self, run: str) -> bool:
        """Stop the run and wait for its end; return False if it had ended.

        Its process sees the stop on record, lets its workers write their outcomes, and writes the
        report. So this works for a run of any process that has the same records.
        """
        records, until = self.records(run), time.monotonic() + STOP_SECONDS
        if self.state(run) != RUNNING:
            return False
        while self.state(run) == RUNNING:
            if records.find_stop() is None:  # a run drops what is on record before it plans
                words = "the run was stopped by s3unzip abort"
                records.write_stop(Stop(Verdict.FAILED, STOPPED, words))
            if time.monotonic() > until:
                raise ServiceFaultError(
                    f"{run}: still at work after {STOP_SECONDS:.0f} s: it stops when its plan is "
                    "made; or end its process"
                )
            time.sleep(0.1)
        report = records.find_report()
        return report is not None and report.reason == STOPPED

    def items(self, run: str) -> Items | None:
        """Return None: there is no Map."""


AnyRuns: TypeAlias = "LocalRuns | DeployedRuns"


class FailedMember(Struct, frozen=True):
    """A line of ``s3unzip show --failures``."""

    task: str  # that the member failed in; "plan": the plan refused it
    outcome: Outcome


class Resumed(Struct, frozen=True):
    """What ``s3unzip resume --env`` did."""

    run: str
    environment: str


class Aborted(Struct, frozen=True):
    """What ``s3unzip abort`` did."""

    run: str
    environment: str | None  # None: the run is one of this machine
    stopped: bool  # whether it was at work
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


def open_runs(given: Arguments) -> AnyRuns:
    """Return the runs of a deployed environment, or of this machine."""
    return LocalRuns(given.config()) if given.env is None else given.deployed()


def missing_report(run: str, runs: AnyRuns) -> NotFoundError:
    """Return the error that says why a run has no report, and what to do."""
    if runs.state(run) == RUNNING:
        return NotFoundError(f"{run}: has no report yet; s3unzip watch {run} follows it")
    if runs.records(run).find_plan() is None:
        return NotFoundError(
            f"{run}: has no plan and no report: it is being planned, or planning failed; then "
            "start again with s3unzip run"
        )
    return NotFoundError(f"{run}: has no report yet; s3unzip resume {run} continues it")


@command("env", SERVER, "newest json")
def runs(given: Arguments) -> int:
    """List runs, the latest first."""
    known = open_runs(given)
    rows: list[tuple[str, ...]] = [TITLES]
    for run, state, started in known.recent(given.newest):
        try:
            one = _list_run(run, state, started, known)
        except UnreadableRecordError as error:  # foreign, truncated or of tomorrow
            place = f"{known.work_location}runs/{run}/"
            one = ListedRun(run, "UNREADABLE", started, source=place)
            warn(f"{place}: {error}")
        if one is not None and given.json:
            print_json(one)
        elif one is not None:
            rows.append(_cells(one))
    if len(rows) > 1:
        write_table(rows, sys.stdout, RIGHT)
        if len(rows) > given.newest:
            sys.stderr.write(f"the latest {given.newest:,}; --limit N lists more\n")
    elif not given.json:
        sys.stderr.write("no runs yet: s3unzip run SRC DEST begins one\n")
    return 0


def _list_run(run: str, at_work: str, started: float, known: AnyRuns) -> ListedRun | None:
    records = known.records(run)
    try:
        report = records.read_report()
    except NotFoundError:
        report = None
    # A run that is refused has ended; the note of its end is written a little later.
    if report is None or (at_work == RUNNING and report.verdict is not Verdict.REJECTED):
        plan = records.find_plan()
        if not at_work and plan is None and known.environment is None:
            return None  # it is being planned, or was refused before there was a record
        state = at_work or known.state(run)
        state = "UNFINISHED" if state in {None, ENDED} else str(state)
        ends = (str(plan.run.source), str(plan.run.destination)) if plan else ()
        return ListedRun(run, state, started, None, *ends)
    return ListedRun(
        run,
        "STOPPED" if report.reason == STOPPED else report.verdict.value,
        report.started,
        round(report.finished - report.started, 3),
        str(report.source),
        str(report.destination),
        report.members,
        report.extracted,
        report.unchanged,
        report.failed,
    )


def _cells(run: ListedRun) -> tuple[str, ...]:
    figures = ("", "", "")
    if run.seconds is not None:
        figures = (show_seconds(run.seconds), f"{run.members:,}", f"{run.failed:,}")
    ends = f"{run.source} -> {run.destination}" if run.source else ""
    return (show_time(run.started), run.state, *figures, run.run, printable(ends))


@command("run env", SERVER, "failures html json", run=LATEST)
def show(given: Arguments) -> int:
    """Print the report of a run; the exit code is its verdict's."""
    known = open_runs(given)
    name = known.find(given.run)
    try:
        report = known.records(name).read_report()
    except NotFoundError:
        raise missing_report(name, known) from None
    except UnreadableRecordError as damage:
        raise UnreadableRecordError(
            f"{damage}; s3unzip resume {name}{known.found_by} writes it again"
        ) from None
    if given.failures:
        for task, outcome in known.records(name).each_outcome():
            if outcome.status is Status.FAILED and given.json:
                print_json(FailedMember(task, outcome))
            elif outcome.status is Status.FAILED:
                sys.stdout.write(f"{failed_line(outcome)}\n")
        if not report.failed:
            out = sys.stderr if given.json else sys.stdout
            out.write(f"{name}: {report.verdict}, no member failed\n")
    elif given.html:
        page = _page_of(report, known)
        sys.stdout.write(f"{page}\n")
        if sys.stdout.isatty():
            webbrowser.open(page.as_uri())
    elif given.json:
        print_json(report)
    else:
        reached = known.connections(name).typed()
        print_report(report, sys.stdout, environment=known.environment, reached=reached)
    return report.verdict.exit_code


def _page_of(report: Report, known: AnyRuns) -> Path:
    """Return where the page of a run is on this machine, fetched or made if it is elsewhere."""
    from s3unzip.settling.report_page.page import render_page

    run, home = report.run, Path(runs_home().key)
    if known.environment is None:
        page = home / "runs" / run / PAGE
        if not page.is_file():
            raise NotFoundError(f"{run}: has no page; s3unzip resume {run} writes it")
        return page
    page = home / "pages" / f"{run}.html"
    make_folders(page.parent, PRIVATE)
    try:
        body = known.records(run).read_page()
    except NotFoundError:  # a small archive that was extracted at once keeps none
        context = Context(known.stores, LocalClock(), environment=known.environment)
        body = render_page(report, context)
    page.write_bytes(body)
    return page


@command("run workers env", "password_file", PLACES, "kms_key failed json")
def resume(given: Arguments) -> int:
    """Continue a run: do the tasks that did not end.

    With --failed, try the failed members again; the other members are not touched. Fix what made
    these fail first.
    """
    known = open_runs(given)
    if isinstance(known, LocalRuns):
        return _resume_here(given, known)
    name = known.find(given.run)
    if not _is_completed(name, known, json=given.json):
        known.resume(name, failed=given.failed)
        words = f"resumed: s3unzip watch {name}{known.found_by}"
        _print_either(words, Resumed(name, known.environment), json=given.json)
    return 0


def _resume_here(given: Arguments, known: LocalRuns) -> int:
    """Do what is left of a run of this machine, print its report; return the exit code."""
    from s3unzip.api.options import make_policy
    from s3unzip.local.machine import open_machine
    from s3unzip.local.recovery import may_have_lost

    tuning, secret = given.tuning(), given.password()
    name = known.find(given.run)
    planned = _read_plan(name, known).run
    destination = known.stores.destination(planned.destination)
    is_sure = not may_have_lost(known.work_location.key, name, destination)
    if is_sure and _is_completed(name, known, json=given.json):
        return 0
    if planned.options.password_ref is not None and secret is None:
        raise UsageError(f"{planned.id} was started with a password: give --password-file")
    policy = make_policy(planned.options, secret, planned.destination)
    display, stores = RunDisplay(), _recall_config(given, known.connections(name))
    check_buckets(stores, planned.source, planned.destination)
    with open_machine(stores, policy, tuning, given.processes, display) as machine, display:
        report = machine.resume(name, display.planned, failed=given.failed)
    if given.json:
        print_json(report)
    # No rates: it was not at work all the time since its start.
    print_report(report, rates=False, reached=stores.typed())
    return report.verdict.exit_code


def _is_completed(run: str, known: AnyRuns, *, json: bool) -> bool:
    """Say whether nothing is left of a run, and tell it."""
    report = known.records(run).find_report()
    if report is None or report.verdict is not Verdict.COMPLETED or report.archive_left:
        return False
    sys.stderr.write(f"{run}: COMPLETED already, nothing is left to do\n")
    if json:
        print_json(report)
    return True


def _read_plan(run: str, known: AnyRuns) -> PlanSummary:
    """Return what the plan of a run found."""
    try:
        plan = known.records(run).find_plan()
    except UnreadableRecordError as damage:
        again = "start the run anew with s3unzip run of the same archive"
        raise UnreadableRecordError(f"{damage}; {again}") from None
    if plan is None:
        raise NotFoundError(
            f"{run}: has no plan, because the archive was refused or planning failed; start again "
            "with s3unzip run"
        )
    return plan


def _recall_config(given: Arguments, known: StoreConfig) -> StoreConfig:
    """Return how the stores of a run are reached: as is typed now, else as its records say."""
    source_of = click.get_current_context().get_parameter_source
    rows = read_options(StoreConfig)
    typed = {row.field for row in rows if source_of(row.parameter) is ParameterSource.COMMANDLINE}
    recalled = {
        name: getattr(known, name)
        for name in (*(row.field for row in rows), "other_hosts")
        if getattr(known, name) and name not in typed and RIVALS.get(name) not in typed
    }
    return replace(given.config(), **recalled)


@command("run env", SERVER, "json")
def abort(given: Arguments) -> int:
    """Stop a run and drop its incomplete uploads.

    Members that are already written stay.
    """
    from s3unzip.local.machine import drop_uploads

    known = open_runs(given)
    name = known.find(given.run)
    if isinstance(known, LocalRuns):
        known = LocalRuns(_recall_config(given, known.connections(name)))
    stopped = known.stop(name)
    report = known.records(name).find_report()
    state = "stopped"
    if not stopped:
        state = "it was not at work" if report is None else f"it has ended {report.verdict}"
    count = 0
    if stopped or report is None or report.verdict is not Verdict.COMPLETED:
        # Without a plan it was stopped while it was planned, and the report function ends it.
        # A small archive that was extracted at once has its outcomes and its report alone.
        has_ended = stopped or report is not None
        plan = known.records(name).find_plan() if has_ended else _read_plan(name, known)
        here = Context(stores=known.stores, clock=LocalClock())
        count = 0 if plan is None else drop_uploads(Step(plan.run, "abort", here, here.calls()))
    words = f"{name}: {state}; {show_count(count, 'incomplete upload')} dropped"
    done = Aborted(name, known.environment, stopped=stopped, uploads=count)
    _print_either(words, done, json=given.json)
    return 0


def _print_either(words: str, value: object, *, json: bool) -> None:
    if json:
        print_json(value)
    else:
        sys.stdout.write(f"{words}\n")


@command("run env", SERVER, "interval json", run=LATEST)
def watch(given: Arguments) -> int:
    """Follow a run until it ends; the exit code is its verdict's.

    With --json, a line each time that a figure changes; the last line is the report.
    """
    known = open_runs(given)
    name = known.find(given.run)
    with RunDisplay() as display:
        report = _follow(name, known, display, given)
    if given.json:
        print_json(report)
    elif not sys.stdout.isatty():  # the report is on stderr
        sys.stdout.write(f"{name}: {report.verdict}\n")
    reached = known.connections(name).typed()
    print_report(report, environment=known.environment, reached=reached)
    return report.verdict.exit_code


def _follow(run: str, known: AnyRuns, display: RunDisplay, given: Arguments) -> Report:
    """Show what is new until the run has its report; return it."""
    watcher, printed = RunWatcher(known.records(run)), None
    answered, ended = time.monotonic(), None
    while True:
        now = time.monotonic()
        try:
            # The state first: a report that is there when a run had ended before is its last one.
            state, report = known.state(run), known.records(run).find_report()
            seen = watcher.read()
            items = known.items(run) if state == RUNNING else None
            answered = now
        except ServiceFaultError:
            if now - answered > FAULT_SECONDS:
                raise
            time.sleep(given.interval)
            continue
        line = _progress(run, state, seen, items)
        if given.json and line != printed:
            printed = line
            print_json(line)
            sys.stdout.flush()
        if seen.summary is not None:
            if display.plan is None:
                display.planned(seen.summary, gone=max(0.0, time.time() - seen.summary.started))
            display.finished(seen.counts - display.counts)
            display.failed(seen.failures)
            display.note = _note(seen.summary, seen, items)
        if state != RUNNING and report is not None:
            return report
        if state not in {RUNNING, None}:
            ended = now if ended is None else ended
            if state == ENDED and now - ended > BEGIN_SECONDS:
                raise missing_report(run, known)
            if now - ended > REPORT_SECONDS:
                raise NotFoundError(f"{run}: its execution ended and left no report")
        time.sleep(given.interval)


def _progress(run: str, state: str | None, seen: RunSnapshot, items: Items | None) -> RunProgress:
    """Return what is known of a run as a line of JSON has it."""
    figures = {name: seen.counts[name] for name in FIGURES}
    if seen.summary is not None:
        figures |= {"members": seen.summary.selected, "tasks": seen.summary.tasks}
    if items is not None:
        figures |= {"running": items.running, "waiting": items.waiting, "lost": items.failed}
    return RunProgress(
        run,
        state or "",
        **figures,
        tasks_done=seen.tasks,
        rounds=seen.rounds,
        throttled=seen.throttled,
        retries=seen.retries,
        first_object=seen.first_object,
    )


def _note(summary: PlanSummary, seen: RunSnapshot, items: Items | None) -> str:
    """Return what a display of a local run has no place for."""
    parts = []
    if seen.rounds > 1:
        parts.append(f"round {seen.rounds}")
    tasks = f"{seen.tasks:,}/{summary.tasks:,} tasks"
    if items is not None:
        tasks += f" ({items.running:,} running, {items.waiting:,} waiting"
        tasks += f", {items.failed:,} lost)" if items.failed else ")"
    parts.append(tasks)
    if seen.first_object is not None:
        since = summary.run.event_time or summary.started
        parts.append(f"first object after {show_seconds(max(0.0, seen.first_object - since))}")
    if seen.throttled or seen.retries:
        parts.append(f"{seen.throttled:,} throttled, {seen.retries:,} retried")
    return ", ".join(parts)
