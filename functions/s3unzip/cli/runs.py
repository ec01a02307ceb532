"""Commands on runs: ``runs``, ``show``, ``watch``, ``resume``, ``abort``.

The runs are this machine's, or those of a deployed environment.
"""

import sys
import time
import webbrowser
from pathlib import Path

import click
from click.core import ParameterSource
from msgspec import Struct
from msgspec.structs import replace

from s3unzip.cli.arguments import Arguments
from s3unzip.cli.commands import PLACES, SERVER, command
from s3unzip.cli.output import print_report
from s3unzip.cli.progress import RunDisplay, failed_line
from s3unzip.cli.terminal import print_json, warn, write_table
from s3unzip.context import Context
from s3unzip.errors import NotFoundError, ServiceFaultError, UnreadableRecordError, UsageError
from s3unzip.figures import show_count, show_seconds, show_time
from s3unzip.local.runs import ENDED, LocalRuns
from s3unzip.model import Outcome, PlanSummary, Report, Route, Status, Verdict
from s3unzip.options import read_options
from s3unzip.printable import printable
from s3unzip.runs.progress import RunSnapshot, RunWatcher
from s3unzip.runs.records import PAGE
from s3unzip.runs.run_list import RUNNING, MapCounts, RecentRun, RunList
from s3unzip.runs.step import STOPPED, Step
from s3unzip.stores.clock import LocalClock
from s3unzip.stores.config import StoreConfig
from s3unzip.stores.files import PRIVATE, make_folders
from s3unzip.stores.locations import runs_home
from s3unzip.stores.open import check_buckets

RUN_COLUMNS = (
    "STARTED (UTC)",
    "STATE",
    "TOOK",
    "MEMBERS",
    "FAILED",
    "RUN",
    "SOURCE -> DESTINATION",
)
DAY = 86_400.0  # seconds
RIGHT = {"TOOK", "MEMBERS", "FAILED"}
LATEST = {"metavar": "[RUN]", "required": False, "default": "latest"}
# Of two options that exclude each other, the one that is typed counts.
RIVALS = {"unsigned": "request_payer", "request_payer": "unsigned"}
FIGURES = ("extracted", "unchanged", "failed", "bytes_written")
REPORT_SECONDS = 90.0  # an execution that failed gets its report a little later
BEGIN_SECONDS = 5.0  # between the trial of the destination, or the plan, and the first task
FAULT_SECONDS = 120.0  # a service that does not answer so long ends the watch


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
    state: str  # the verdict; RUNNING, STOPPED or UNFINISHED where there is none
    started: float  # Unix seconds
    seconds: float | None = None
    source: str = ""
    destination: str = ""
    members: int = 0
    extracted: int = 0
    unchanged: int = 0
    failed: int = 0
    route: str = ""  # of the environment


class RunProgress(Struct, frozen=True, omit_defaults=True):
    """A line of ``s3unzip watch --json``, printed when a figure changes; the report is the last."""

    run: str
    state: str = ""  # of the execution; empty on one machine
    members: int | None = None  # that the run selected; None: its plan is still made
    extracted: int = 0  # by tasks that ended, as all counts
    unchanged: int = 0
    failed: int = 0
    bytes_written: int = 0
    tasks: int = 0  # of the first round
    tasks_done: int = 0
    rounds: int = 0
    running: int | None = None  # tasks of the Map at work
    waiting: int | None = None  # tasks of the Map that have not begun
    lost: int | None = None  # tasks of the Map without a result
    throttled: int = 0  # requests
    retries: int = 0  # requests
    first_object: float | None = None  # Unix seconds


def open_runs(arguments: Arguments) -> RunList:
    """Return the runs of a deployed environment, or of this machine."""
    if arguments.env is None:
        return LocalRuns(arguments.config())
    return arguments.deployed()


def missing_report(run: str, runs: RunList) -> NotFoundError:
    """Return the error that says why a run has no report, and what to do."""
    if runs.state(run) == RUNNING:
        return NotFoundError(f"{run}: has no report yet; s3unzip watch {run} follows it")
    if runs.records(run).find_plan() is None:
        return NotFoundError(
            f"{run}: has no plan and no report: it is being planned, or planning failed; then "
            "start again with s3unzip run"
        )
    return NotFoundError(f"{run}: has no report yet; s3unzip resume {run} continues it")


@command("env", SERVER, "newest prune json")
def runs(arguments: Arguments) -> int:
    """List runs, the latest first."""
    if arguments.prune is not None:
        return _prune(arguments, arguments.prune)
    run_list = open_runs(arguments)
    rows: list[tuple[str, ...]] = [RUN_COLUMNS]
    for recent in run_list.recent(arguments.newest):
        listed = _list_run(recent, run_list)
        if listed is not None and arguments.json:
            print_json(listed)
        elif listed is not None:
            rows.append(_cells(listed))
    if len(rows) > 1:
        write_table(rows, sys.stdout, RIGHT)
        if len(rows) > arguments.newest:
            sys.stderr.write(f"the latest {arguments.newest:,}; --limit N lists more\n")
    elif not arguments.json:
        sys.stderr.write("no runs yet: s3unzip run SRC DEST begins one\n")
    return 0


def _prune(arguments: Arguments, days: float) -> int:
    """Remove old records of runs of this machine; an environment has a rule of its bucket."""
    if arguments.env is not None:
        raise UsageError(
            "--prune: is for runs of this machine; work.expire_days removes those of an environment"
        )
    count = LocalRuns(arguments.config()).prune(time.time() - days * DAY)
    sys.stdout.write(f"{show_count(count, 'run')} removed\n")
    return 0


def _list_run(recent: RecentRun, run_list: RunList) -> ListedRun | None:
    """Return the line of a run; None: it is being planned, or was refused before it had a record.

    Warns of records that cannot be read: of another version, truncated or foreign.
    """
    try:
        return _read_run(recent, run_list)
    except UnreadableRecordError as error:
        folder = f"{run_list.work_location}runs/{recent.run}/"
        warn(f"{folder}: {error}")
        return ListedRun(recent.run, "UNREADABLE", recent.time, source=folder)


def _read_run(recent: RecentRun, run_list: RunList) -> ListedRun | None:
    """Return the line of a run by its report, else by its plan; None: it has neither yet."""
    run = recent.run
    records = run_list.records(run)
    try:
        report = records.read_report()
    except NotFoundError:
        report = None
    # A run that is refused has ended; the note of its end is written a little later.
    is_at_work = recent.state == RUNNING
    if report is not None and (not is_at_work or report.verdict is Verdict.REJECTED):
        return _describe_report(run, report)
    plan = records.find_plan()
    if not recent.state and plan is None and run_list.environment is None:
        return None
    state = recent.state or run_list.state(run)
    if state is None or state == ENDED:
        state = "UNFINISHED"
    listed = ListedRun(run, state, recent.time)
    if plan is None:
        return listed
    return replace(
        listed,
        source=str(plan.run.source),
        destination=str(plan.run.destination),
        route=_route_name(plan.run.route),
    )


def _describe_report(run: str, report: Report) -> ListedRun:
    """Return the line of a run that has ended."""
    state = report.verdict.value
    if report.reason == STOPPED:
        state = "STOPPED"
    return ListedRun(
        run,
        state,
        report.started,
        seconds=round(report.finished - report.started, 3),
        source=str(report.source),
        destination=str(report.destination),
        members=report.members,
        extracted=report.extracted,
        unchanged=report.unchanged,
        failed=report.failed,
        route=_route_name(report.route),
    )


def _route_name(route: Route | None) -> str:
    if route is None:
        return ""
    return route.name


def _cells(run: ListedRun) -> tuple[str, ...]:
    """Return the cells of `RUN_COLUMNS` for one run; one that has not ended has no figures."""
    figures = ("", "", "")
    if run.seconds is not None:
        figures = (show_seconds(run.seconds), f"{run.members:,}", f"{run.failed:,}")
    places = ""
    if run.source:
        places = f"{run.source} -> {run.destination}"
    if run.route:
        places += f"  route {run.route}"
    return (show_time(run.started), run.state, *figures, run.run, printable(places))


@command("run env", SERVER, "failures html json", run=LATEST)
def show(arguments: Arguments) -> int:
    """Print the report of a run; the exit code is its verdict's."""
    run_list = open_runs(arguments)
    run = run_list.find(arguments.run)
    try:
        report = run_list.records(run).read_report()
    except NotFoundError:
        raise missing_report(run, run_list) from None
    except UnreadableRecordError as damage:
        raise UnreadableRecordError(
            f"{damage}; s3unzip resume {run}{run_list.found_by} writes it again"
        ) from None
    if arguments.failures:
        _print_failures(report, run_list, json=arguments.json)
    elif arguments.html:
        page = _page_of(report, run_list)
        sys.stdout.write(f"{page}\n")
        if sys.stdout.isatty():
            webbrowser.open(page.as_uri())
    elif arguments.json:
        print_json(report)
    else:
        reached = run_list.connections(run).without_environment()
        print_report(report, sys.stdout, environment=run_list.environment, reached=reached)
    return report.verdict.exit_code


def _print_failures(report: Report, run_list: RunList, *, json: bool) -> None:
    """Print a line for each member that failed."""
    for task, outcome in run_list.records(report.run).each_outcome():
        if outcome.status is Status.FAILED and json:
            print_json(FailedMember(task, outcome))
        elif outcome.status is Status.FAILED:
            sys.stdout.write(f"{failed_line(outcome)}\n")
    if not report.failed:
        out = sys.stderr if json else sys.stdout
        out.write(f"{report.run}: {report.verdict}, no member failed\n")


def _page_of(report: Report, run_list: RunList) -> Path:
    """Return where the page of a run is on this machine, fetched or made if it is elsewhere."""
    from s3unzip.settling.report_page.page import render_page

    run = report.run
    home = Path(runs_home().key)
    if run_list.environment is None:
        page = home / "runs" / run / PAGE
        if not page.is_file():
            raise NotFoundError(f"{run}: has no page; s3unzip resume {run} writes it")
        return page
    page = home / "pages" / f"{run}.html"
    make_folders(page.parent, PRIVATE)
    try:
        body = run_list.records(run).read_page()
    except NotFoundError:  # a small archive that was extracted at once keeps none
        context = Context(run_list.stores, LocalClock(), environment=run_list.environment)
        body = render_page(report, context)
    page.write_bytes(body)
    return page


@command("run workers env", "password_file", PLACES, "kms_key failed json")
def resume(arguments: Arguments) -> int:
    """Continue a run: do the tasks that did not end.

    With --failed, try the failed members again; the other members are not touched. Fix what made
    these fail first.
    """
    if arguments.env is None:
        return _resume_here(arguments)
    deployed = arguments.deployed()
    run = deployed.find(arguments.run)
    completed = _find_completed(run, deployed)
    if completed is not None:
        return _print_completed(completed, json=arguments.json)
    deployed.resume(run, failed=arguments.failed)
    message = f"resumed: s3unzip watch {run}{deployed.found_by}"
    _print_either(message, Resumed(run, deployed.environment), json=arguments.json)
    return 0


def _resume_here(arguments: Arguments) -> int:
    """Do what remains of a run of this machine, print its report; return the exit code."""
    from s3unzip.api.options import make_policy
    from s3unzip.local.machine import open_machine
    from s3unzip.local.recovery import may_have_lost

    tuning = arguments.tuning()
    password = arguments.password()
    local = LocalRuns(arguments.config())
    run_id = local.find(arguments.run)
    run = _require_plan(run_id, local).run
    destination = local.stores.destination(run.destination)
    if not may_have_lost(local.work_location.key, run_id, destination):
        completed = _find_completed(run_id, local)
        if completed is not None:
            return _print_completed(completed, json=arguments.json)
    if run.options.password_ref is not None and password is None:
        raise UsageError(f"{run.id} was started with a password: give --password-file")
    policy = make_policy(run.options, password, run.destination)
    display = RunDisplay()
    stores = _recall_config(arguments, local.connections(run_id))
    check_buckets(stores, run.source, run.destination)
    opened = open_machine(stores, policy, tuning, arguments.processes, progress=display)
    with opened as machine, display:
        report = machine.resume(run_id, display.planned, failed=arguments.failed)
    if arguments.json:
        print_json(report)
    # No rates: it was not at work all the time since its start.
    print_report(report, rates=False, reached=stores.without_environment())
    return report.verdict.exit_code


def _find_completed(run: str, run_list: RunList) -> Report | None:
    """Return the report of a run of which nothing remains to be done; None: something remains.

    An archive that should have been deleted or tagged after the run, and was not, remains.
    """
    report = run_list.records(run).find_report()
    if report is None or report.verdict is not Verdict.COMPLETED or report.archive_left:
        return None
    return report


def _print_completed(report: Report, *, json: bool) -> int:
    """Print that nothing of a run remains to be done; return the exit code."""
    sys.stderr.write(f"{report.run}: COMPLETED already, nothing is left to do\n")
    if json:
        print_json(report)
    return 0


def _require_plan(run: str, run_list: RunList) -> PlanSummary:
    """Return the plan of a run; if it is missing or damaged, the error says how to begin anew."""
    try:
        plan = run_list.records(run).find_plan()
    except UnreadableRecordError as damage:
        again = "start the run anew with s3unzip run of the same archive"
        raise UnreadableRecordError(f"{damage}; {again}") from None
    if plan is None:
        raise NotFoundError(
            f"{run}: has no plan, because the archive was refused or planning failed; start again "
            "with s3unzip run"
        )
    return plan


def _recall_config(arguments: Arguments, recorded: StoreConfig) -> StoreConfig:
    """Return how the stores of a run are reached: as is typed now, else as its records say."""
    source_of = click.get_current_context().get_parameter_source
    rows = read_options(StoreConfig)
    typed = {row.field for row in rows if source_of(row.parameter) is ParameterSource.COMMANDLINE}
    recalled = {
        name: getattr(recorded, name)
        for name in (*(row.field for row in rows), "other_hosts")
        if getattr(recorded, name) and name not in typed and RIVALS.get(name) not in typed
    }
    return replace(arguments.config(), **recalled)


@command("run env", SERVER, "json")
def abort(arguments: Arguments) -> int:
    """Stop a run and drop its incomplete uploads.

    Members that are already written stay.
    """
    run_list = open_runs(arguments)
    run = run_list.find(arguments.run)
    if arguments.env is None:  # the uploads are in the run's stores: reach them as the run did
        run_list = LocalRuns(_recall_config(arguments, run_list.connections(run)))
    is_stopped = run_list.stop(run)
    records = run_list.records(run)
    report = records.find_report()
    plan: PlanSummary | None = None
    if is_stopped:
        state = "stopped"
        plan = records.find_plan()
    elif report is None:
        state = "it was not at work"
        plan = _require_plan(run, run_list)
    else:
        state = f"it has ended {report.verdict}"
        if report.verdict is not Verdict.COMPLETED:  # which has no incomplete uploads
            plan = records.find_plan()
    uploads = _drop_uploads(plan, run_list)
    message = f"{run}: {state}; {show_count(uploads, 'incomplete upload')} dropped"
    aborted = Aborted(run, run_list.environment, stopped=is_stopped, uploads=uploads)
    _print_either(message, aborted, json=arguments.json)
    return 0


def _drop_uploads(plan: PlanSummary | None, run_list: RunList) -> int:
    """Drop the incomplete uploads of a run; return their number.

    A run that ended may have no plan: it was stopped while it was planned, and the settle function
    ends it; or a small archive was extracted at once and has its outcomes and its report alone.
    """
    from s3unzip.local.machine import drop_uploads

    if plan is None:
        return 0
    context = Context(stores=run_list.stores, clock=LocalClock())
    return drop_uploads(Step(plan.run, "abort", context, context.calls()))


def _print_either(message: str, value: object, *, json: bool) -> None:
    if json:
        print_json(value)
    else:
        sys.stdout.write(f"{message}\n")


@command("run env", SERVER, "interval json", run=LATEST)
def watch(arguments: Arguments) -> int:
    """Follow a run until it ends; the exit code is its verdict's.

    With --json, a line each time that a figure changes; the last line is the report.
    """
    run_list = open_runs(arguments)
    run = run_list.find(arguments.run)
    with RunDisplay() as display:
        report = _follow(run, run_list, display, arguments)
    if arguments.json:
        print_json(report)
    elif not sys.stdout.isatty():  # the report is on stderr
        sys.stdout.write(f"{run}: {report.verdict}\n")
    reached = run_list.connections(run).without_environment()
    print_report(report, environment=run_list.environment, reached=reached)
    return report.verdict.exit_code


def _follow(run: str, run_list: RunList, display: RunDisplay, arguments: Arguments) -> Report:
    """Show what is new until the run has its report; return it."""
    watcher = RunWatcher(run_list.records(run))
    printed: RunProgress | None = None
    answered = time.monotonic()  # when the records were last read
    ended: float | None = None  # when the run was first seen at its end
    while True:
        now = time.monotonic()
        try:
            # Read the state before the report: then a report found after the end is final.
            state = run_list.state(run)
            report = run_list.records(run).find_report()
            snapshot = watcher.read()
            counts = None
            if state == RUNNING:
                counts = run_list.map_counts(run)
            answered = now
        except ServiceFaultError:
            if now - answered > FAULT_SECONDS:
                raise
            time.sleep(arguments.interval)
            continue
        line = _progress(run, state, snapshot, counts)
        if arguments.json and line != printed:
            printed = line
            print_json(line)
            sys.stdout.flush()
        _show(display, snapshot, counts)
        if state != RUNNING and report is not None:
            return report
        if state not in {RUNNING, None}:
            ended = ended or now
            _check_end(run, state, run_list, now - ended)
        time.sleep(arguments.interval)


def _show(display: RunDisplay, snapshot: RunSnapshot, counts: MapCounts | None) -> None:
    """Show the progress of a run that has its plan."""
    plan = snapshot.summary
    if plan is None:
        return
    if display.plan is None:
        display.planned(plan, gone=max(0.0, time.time() - plan.started))
    display.finished(snapshot.counts - display.counts)
    display.failed(snapshot.failures)
    display.note = _note(plan, snapshot, counts)


def _check_end(run: str, state: str | None, run_list: RunList, seconds: float) -> None:
    """Check that a run without a report may still get one; it ended `seconds` ago."""
    if state == ENDED and seconds > BEGIN_SECONDS:
        raise missing_report(run, run_list)
    if seconds > REPORT_SECONDS:
        raise NotFoundError(f"{run}: its execution ended and left no report")


def _progress(
    run: str, state: str | None, snapshot: RunSnapshot, counts: MapCounts | None
) -> RunProgress:
    """Return what is known of a run as a line of JSON has it."""
    figures = {name: snapshot.counts[name] for name in FIGURES}
    if snapshot.summary is not None:
        figures |= {"members": snapshot.summary.selected, "tasks": snapshot.summary.tasks}
    if counts is not None:
        figures |= {"running": counts.running, "waiting": counts.waiting, "lost": counts.failed}
    return RunProgress(
        run,
        state or "",
        **figures,
        tasks_done=snapshot.tasks,
        rounds=snapshot.rounds,
        throttled=snapshot.throttled,
        retries=snapshot.retries,
        first_object=snapshot.first_object,
    )


def _note(plan: PlanSummary, snapshot: RunSnapshot, counts: MapCounts | None) -> str:
    """Return the figures for which a display of a local run has no room."""
    parts = []
    if snapshot.rounds > 1:
        parts.append(f"round {snapshot.rounds}")
    tasks = f"{snapshot.tasks:,}/{plan.tasks:,} tasks"
    if counts is not None:
        states = f"{counts.running:,} running, {counts.waiting:,} waiting"
        if counts.failed:
            states += f", {counts.failed:,} lost"
        tasks += f" ({states})"
    parts.append(tasks)
    if snapshot.first_object is not None:
        since = plan.run.event_time or plan.started
        seconds = max(0.0, snapshot.first_object - since)
        parts.append(f"first object after {show_seconds(seconds)}")
    if snapshot.throttled or snapshot.retries:
        parts.append(f"{snapshot.throttled:,} throttled, {snapshot.retries:,} retried")
    return ", ".join(parts)
