"""Commands for runs: ``runs``, ``show``, ``watch``, ``resume``, ``abort``."""

import sys
import time
import webbrowser
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource
from msgspec import Struct
from msgspec.structs import replace

from s3unzip.cli.arguments import DAY, Arguments
from s3unzip.cli.commands import SERVER_OPTIONS, STORE_OPTIONS, command
from s3unzip.cli.output import RunOutput, exit_code, print_report
from s3unzip.cli.progress import RunDisplay, failed_line
from s3unzip.cli.terminal import print_json, text_stream, warn, write_table
from s3unzip.context import Context
from s3unzip.errors import (
    ExpiredKeysError,
    NotFoundError,
    ServiceFaultError,
    StorageError,
    UnreadableRecordError,
    UsageError,
)
from s3unzip.local.runs import ENDED, LocalRuns, lock_run, machine_restarted_since
from s3unzip.model import Outcome, PlanSummary, Report, Request, Run, Status, Verdict
from s3unzip.options import read_options
from s3unzip.planning.select import members_folder
from s3unzip.printable import choose_form, printable, show_count, show_seconds, show_time
from s3unzip.runs.records import NESTED, PAGE, RunRecords
from s3unzip.runs.run_list import (
    RUNNING,
    ListedRun,
    RunList,
    RunProgress,
    RunSnapshot,
    read_snapshot,
)
from s3unzip.runs.step import STOPPED, Step
from s3unzip.stores.config import StoreConfig, runs_home
from s3unzip.stores.files import PRIVATE, explaining, make_folders
from s3unzip.stores.open import check_buckets
from s3unzip.stores.ports import Clock

RUN_COLUMNS = (
    "STARTED (UTC)",
    "STATE",
    "TOOK",
    "MEMBERS",
    "FAILED",
    "RUN",
    "SOURCE -> DESTINATION",
)
LATEST = {"metavar": "[RUN]", "required": False, "default": "latest"}
# Mutually exclusive options: if one is given, the recorded value of the other is not used.
EXCLUSIVE = {"unsigned": "request_payer", "request_payer": "unsigned"}
SUCCEEDED = "SUCCEEDED"  # state of an execution that wrote the report
REPORT_SECONDS = 90.0  # maximum time until the report of a failed execution is written
BEGIN_SECONDS = 5.0  # maximum time until a planned run on this machine begins
FAULT_SECONDS = 120.0  # time after which a command gives up on a service that does not respond


class FailedMember(Struct, frozen=True):
    """A line of ``s3unzip show --failures``."""

    task: str  # the task in which the member failed; "plan" if it was refused in planning
    outcome: Outcome


class Resumed(Struct, frozen=True):
    """The result of ``s3unzip resume --env``."""

    run: str
    environment: str


class Aborted(Struct, frozen=True):
    """The result of ``s3unzip abort``."""

    run: str
    environment: str | None  # null if the run is on this machine
    stopped: bool  # whether the run was active
    uploads: int  # number of incomplete uploads that were dropped


def _open_runs(arguments: Arguments) -> RunList:
    if arguments.env is None:
        return LocalRuns(arguments.config())
    return arguments.deployed()


def _missing_report(run: str, runs: RunList) -> NotFoundError:
    """Return the error for a run without a report: the reason, and what to do."""
    state = runs.state(run)
    if state == SUCCEEDED:
        return NotFoundError(
            f"{run} has ended, and its records are gone, because they expire after "
            f"work.expire_days; extract its archive again: s3unzip resume {run}{runs.env_options}"
        )
    if state == RUNNING:
        return NotFoundError(
            f"{run} has no report yet; follow it: s3unzip watch {run}{runs.env_options}"
        )
    # On this machine, `resume` needs a plan. In an environment, `resume` creates the plan.
    if runs.environment is None and runs.records(run).find_plan() is None:
        return NotFoundError(
            f"{run} has no plan and no report: it is being planned, or its planning failed; if "
            "planning failed, start again with s3unzip run"
        )
    return NotFoundError(
        f"{run} has no report yet; continue it: s3unzip resume {run}{runs.env_options}"
    )


@command(f"env {SERVER_OPTIONS} max_runs prune json")
def runs(arguments: Arguments) -> int:
    """List runs, the latest first."""
    if arguments.prune is not None:
        return _prune(arguments, arguments.prune)
    run_list = _open_runs(arguments)
    rows: list[tuple[str, ...]] = [RUN_COLUMNS]
    for recent in run_list.recent(arguments.max_runs):
        try:
            listed = _list_run(recent, run_list)  # None if the run has no plan yet
        except UnreadableRecordError as error:  # a record is damaged or from another version
            warn(f"{run_list.work_location}runs/{recent.run}/: {error}")
            state = RUNNING if recent.state == RUNNING else "UNREADABLE"
            listed = replace(recent, state=state)
        if listed is not None:
            if arguments.json:
                print_json(listed)
            else:
                rows.append(_cells(listed))
    if len(rows) > 1:
        write_table(rows, sys.stdout, right={"TOOK", "MEMBERS", "FAILED"})
        if len(rows) > arguments.max_runs:  # the first row contains the titles
            sys.stderr.write(f"the latest {arguments.max_runs:,}; --limit N lists more\n")
    elif not arguments.json:
        sys.stderr.write(f"{run_list.nothing_yet}\n")
    return 0


def _prune(arguments: Arguments, days: float) -> int:
    """Remove old records on this machine; in an environment, a lifecycle rule removes them."""
    if arguments.env is not None:
        raise UsageError(
            "--prune: works only for runs on this machine; in an environment, work.expire_days "
            "determines when records are removed"
        )
    removed, resumable = LocalRuns(arguments.config()).prune(time.time() - days * DAY)
    text_stream(json=arguments.json).write(f"{show_count(removed, 'run')} removed\n")
    if resumable:
        sys.stderr.write(
            f"{show_count(resumable, 'older run')} {choose_form(resumable, 'stays', 'stay')}, "
            "because s3unzip resume may be able to continue "
            f"{choose_form(resumable, 'it', 'them')}\n"
        )
    return 0


def _list_run(recent: ListedRun, run_list: RunList) -> ListedRun | None:
    """Return the line for a run from its report or plan; None if a local run has no plan yet."""
    records = run_list.records(recent.run)
    report = _read_current_report(records, recent.state)
    if report is not None:
        return _list_report(report)
    plan = records.find_plan()
    if plan is None and run_list.environment is None:
        return None  # a run on this machine that is being planned, or whose planning failed
    # If no state is known, the run is not running.
    state = recent.state or run_list.state(recent.run) or ENDED
    if state == ENDED:  # the run has ended without a report
        state = "UNFINISHED"
    if plan is None:
        return replace(recent, state=state)
    return replace(recent, state=state, **_shared_fields(plan.run))


def _list_report(report: Report) -> ListedRun:
    """Return the line for a run that has ended."""
    state = report.verdict.value
    if report.reason == STOPPED:
        state = "STOPPED"
    return ListedRun(
        report.run,
        state,
        report.started,
        round(max(0.0, report.finished - report.started), 3),
        **_shared_fields(report),
        members=report.members,
        extracted=report.extracted,
        unchanged=report.unchanged,
        failed=report.failed,
    )


def _read_current_report(records: RunRecords, state: str) -> Report | None:
    """Return the report of a run; None if there is none yet, or if the run has been resumed."""
    try:
        report = records.read_report()
    except NotFoundError:
        return None
    # If a run has a report and is still RUNNING, the run was resumed. But the report of a rejection
    # is written shortly before the state changes.
    if state == RUNNING and report.verdict is not Verdict.REJECTED:
        return None
    return report


def _shared_fields(described: Report | Request) -> dict[str, Any]:
    """Return the fields of `ListedRun` that a report and a request have in common."""
    return {
        "source": str(described.source),
        "destination": str(described.destination),
        "folder": str(members_folder(described)),
        "route": getattr(described.route, "name", ""),  # empty if there is no route
    }


def _cells(run: ListedRun) -> tuple[str, ...]:
    """Return the cells for `RUN_COLUMNS`; the figures are empty if the run has not ended."""
    figures = ("", "", "")
    if run.seconds is not None:
        figures = (show_seconds(run.seconds), f"{run.members:,}", f"{run.failed:,}")
    locations = ""
    if run.source:
        locations = f"{run.source} -> {run.folder}"
    if run.route:
        locations += f"  route {run.route}"
    return (show_time(run.started), run.state, *figures, run.run, printable(locations))


@command(f"run env {SERVER_OPTIONS} failures html json", run=LATEST)
def show(arguments: Arguments) -> int:
    """Print the report of a run; exit with the code of its verdict."""
    run_list = _open_runs(arguments)
    report = _require_report(run_list.find(arguments.run), run_list)
    if arguments.failures:
        _print_failures(report, run_list, json=arguments.json)
    elif arguments.html:
        page = _find_page(report, run_list)
        sys.stdout.write(f"{page}\n")
        if sys.stdout.isatty():
            webbrowser.open(page.as_uri())
    elif arguments.json:
        print_json(report)
    else:
        print_report(
            report,
            sys.stdout,
            environment=run_list.environment,
            connections=run_list.connections(report.run).for_printed_commands(),
        )
    return report.verdict.exit_code


def _require_report(run: str, run_list: RunList) -> Report:
    """Return the report of a run; if it is missing or damaged, the error says what to do."""
    try:
        return run_list.records(run).read_report()
    except NotFoundError:
        raise _missing_report(run, run_list) from None
    except UnreadableRecordError as damage:
        raise UnreadableRecordError(
            f"{damage}; s3unzip resume {run}{run_list.env_options} writes it again"
        ) from None


def _print_failures(report: Report, run_list: RunList, *, json: bool) -> None:
    """Print a line for each failed member, including those that the report does not list."""
    unprinted = report.failed
    for task, outcome in run_list.records(report.run).final_outcomes():
        if outcome.status is not Status.FAILED:
            continue
        unprinted -= 1
        if json:
            print_json(FailedMember(task, outcome))
        else:
            sys.stdout.write(f"{failed_line(outcome)}\n")
    if not report.failed:
        text_stream(json=json).write(f"{report.run}: {report.verdict}, no member failed\n")
    if unprinted > 0:
        subject = f"{show_count(unprinted, 'failed member')} {choose_form(unprinted, 'is', 'are')}"
        if run_list.state(report.run) == RUNNING:
            warn(
                f"{subject} being retried; follow the run: s3unzip watch {report.run}"
                f"{run_list.env_options}"
            )
        else:
            warn(
                f"{subject} in a record that is damaged or lost; s3unzip resume {report.run}"
                f"{run_list.env_options} writes it again"
            )


def _find_page(report: Report, run_list: RunList) -> Path:
    """Return the path of a run's page; if it is not on this machine, fetch or render it."""
    from s3unzip.settling.page import render_page

    written_page = Path(runs_home().key, "runs", report.run, PAGE)
    if run_list.environment is None and written_page.is_file():
        return written_page
    page = Path(runs_home().key, "pages", f"{report.run}.html")
    make_folders(page.parent, PRIVATE)
    try:
        body = run_list.records(report.run).store.read(PAGE)
    except NotFoundError:  # small archives in an environment and killed runs get no page
        context = Context(
            run_list.stores,
            Clock(),
            environment=run_list.environment or "",
            connections=run_list.connections(report.run).for_printed_commands(),
        )
        body = render_page(report, context)
    with explaining(str(page)):
        page.write_bytes(body)
    return page


@command(f"run workers env password_file {STORE_OPTIONS} kms_key failed json")
def resume(arguments: Arguments) -> int:
    """Continue a run: complete its remaining tasks.

    With --failed, try the failed members again; the other members are not touched. First, fix
    the cause of the failures.
    """
    if arguments.env is None:
        return _resume_here(arguments)
    deployed = arguments.deployed()
    run = deployed.find(arguments.run)
    if _print_if_complete(run, deployed, arguments):
        return 0
    deployed.resume(run, failed=arguments.failed)
    if arguments.json:
        print_json(Resumed(run, deployed.environment))
    else:
        sys.stdout.write(f"resumed: s3unzip watch {run}{deployed.env_options}\n")
    return 0


def _resume_here(arguments: Arguments) -> int:
    password = arguments.password()
    local = LocalRuns(arguments.config())
    run = _require_plan(local.find(arguments.run), local).run
    # After a power failure, recorded files may be missing; `machine.resume` checks this.
    may_lack_files = run.destination.store.has_folders and machine_restarted_since(
        local.work_location.key, run.id
    )
    if not may_lack_files and _print_if_complete(run.id, local, arguments):
        return 0
    if run.options.password_ref is not None and password is None:
        raise UsageError(f"{run.id} was started with a password: give --password-file")
    stores = _recall_config(arguments, local.connections(run.id))
    check_buckets(stores, run.source, run.destination)
    with (
        RunOutput(  # without rates, because the run was not active all the time
            quiet=False,
            json=arguments.json,
            connections=stores.for_printed_commands(),
            show_rates=False,
        ) as output,
        arguments.open_machine(run, stores, password, output) as machine,
    ):
        report = machine.resume(run.id, failed=arguments.failed)
        output.reported(report)
        nested = []
        if _has_nested_left(report, local, retry_failed=arguments.failed):
            nested = machine.run_nested(report)
    return exit_code(report, nested)


def _has_nested_left(report: Report, run_list: RunList, *, retry_failed: bool) -> bool:
    """Return whether `resume` on this machine extracts the nested archives of a run.

    Args:
        retry_failed: whether `resume` was called with --failed. If so, all nested archives are
            tried again.
    """
    store = run_list.records(report.run).store
    return (
        run_list.environment is None
        and report.options.nested_depth > 0
        and (
            retry_failed
            # `NESTED` is written after all nested archives were tried. `NESTED` also lists the
            # archives whose runs could not begin.
            or not any(store.names(NESTED))
            or b'"reason":"not-begun"' in store.read(NESTED)
        )
    )


def _print_if_complete(run: str, run_list: RunList, arguments: Arguments) -> bool:
    """If a run is complete, print that resume has nothing to do; return whether it is complete.

    In a complete run, no member failed. A run is not complete while nested archives are left, or
    while the deletion or tagging of its archive is pending or has failed.
    """
    report = run_list.records(run).find_report()
    if (
        report is None
        or report.verdict is not Verdict.COMPLETED
        or report.archive_left
        or _has_nested_left(report, run_list, retry_failed=arguments.failed)
    ):
        return False
    sys.stderr.write(
        f"{report.run}: already COMPLETED; nothing is left to do. The destination was not checked; "
        "to compare it with the archive, run: s3unzip verify SRC DEST\n"
    )
    if arguments.json:
        print_json(report)
    return True


def _require_plan(run: str, run_list: RunList) -> PlanSummary:
    """Return the plan of a run; if it is missing or damaged, the error advises a new run."""
    try:
        return run_list.records(run).read_plan()
    except UnreadableRecordError as damage:
        raise UnreadableRecordError(
            f"{damage}; start again with s3unzip run and the same archive"
        ) from None
    except NotFoundError:
        raise NotFoundError(
            f"{run} has no plan, because the archive was refused or planning failed; start again "
            "with s3unzip run"
        ) from None


def _recall_config(arguments: Arguments, recorded: StoreConfig) -> StoreConfig:
    """Return the configuration with which a command reaches the stores of a recorded run.

    A given option takes precedence over a recorded value, and a recorded value over an environment
    variable or the default.
    """
    source_of = click.get_current_context().get_parameter_source
    parameters = {option.field: option.parameter for option in read_options(StoreConfig)}
    given = {
        field
        for field, parameter in parameters.items()
        if source_of(parameter) is ParameterSource.COMMANDLINE
    }
    not_recalled = given | {EXCLUSIVE[field] for field in given & EXCLUSIVE.keys()}
    recalled = {
        field: getattr(recorded, field)
        # `other_hosts` has no option of its own: `--allow` sets it, and no option unsets it, so the
        # recorded value is always recalled.
        for field in (parameters.keys() | {"other_hosts"}) - not_recalled
        if getattr(recorded, field)  # only values that are set are recalled
    }
    return replace(arguments.config(), **recalled)


@command(f"run env {SERVER_OPTIONS} json")
def abort(arguments: Arguments) -> int:
    """Stop a run and drop its incomplete uploads.

    Members that are already written remain.
    """
    run_list = _open_runs(arguments)
    run = run_list.find(arguments.run)
    if arguments.env is None:  # the stores that the run used contain its uploads
        run_list = LocalRuns(_recall_config(arguments, run_list.connections(run)))
    is_stopped = run_list.stop(run)
    records = run_list.records(run)
    report = records.find_report()
    if is_stopped:
        state = "stopped"
    elif report is not None:
        state = f"it has ended with verdict {report.verdict}"
    else:
        state = "it was not running"
    uploads = 0
    if is_stopped or report is None or not report.ok:  # COMPLETED runs have no uploads
        try:
            plan = records.find_plan()
            if plan is not None:
                uploads = _drop_uploads(plan.run, run_list)
        except (ServiceFaultError, StorageError) as fault:
            raise type(fault)(
                f"{run}: {state}, but its incomplete uploads could not be dropped: {fault}"
            ) from None
        if plan is None and report is None and not is_stopped:  # there is nothing to stop or drop
            raise _missing_report(run, run_list)
    if arguments.json:
        print_json(Aborted(run, run_list.environment, stopped=is_stopped, uploads=uploads))
    else:
        sys.stdout.write(f"{run}: {state}; {show_count(uploads, 'incomplete upload')} dropped\n")
    return 0


def _drop_uploads(run: Run, run_list: RunList) -> int:
    """Abort the incomplete uploads of a run that has ended; return their number."""
    from s3unzip.local.recovery import drop_leftovers

    context = Context(stores=run_list.stores, clock=Clock())
    with ExitStack() as locks:
        # Lock a run on this machine, so that `resume` cannot begin new uploads meanwhile.
        if run_list.environment is None:
            locks.enter_context(lock_run(run_list.work_location.key, run.id))
        return drop_leftovers(Step(run, context, context.calls()))


@command(f"run env {SERVER_OPTIONS} interval json", run=LATEST)
def watch(arguments: Arguments) -> int:
    """Follow a run until it ends; exit with the code of its verdict.

    With --json, prints a line each time a figure changes; the last line is the report.
    """
    run_list = _open_runs(arguments)
    run = run_list.find(arguments.run)
    with RunDisplay() as display:
        report = _follow(run, run_list, display, arguments)
    if arguments.json:
        print_json(report)
    elif not sys.stdout.isatty():  # on a terminal, the report on stderr shows the verdict
        sys.stdout.write(f"{run}: {report.verdict}\n")
    print_report(
        report,
        sys.stderr,
        environment=run_list.environment,
        connections=run_list.connections(run).for_printed_commands(),
    )
    return report.verdict.exit_code


def _follow(run: str, run_list: RunList, display: RunDisplay, arguments: Arguments) -> Report:
    """Show the progress of a run until it ends; return its report."""
    snapshot = RunSnapshot(run)  # nothing is read yet
    printed: RunProgress | None = None  # the progress that was last printed as JSON
    read_at = time.monotonic()  # the time of the last successful read
    ended_at: float | None = None  # when the run was first seen to have ended
    while True:
        now = time.monotonic()
        try:
            # The state is read before the report, so that a report found after the end is final.
            state = run_list.state(run)  # None if the run has not begun, or is no longer known
            report = run_list.records(run).find_report()
            task_counts = {}  # numbers of tasks that are waiting, running and lost
            if state == RUNNING:
                task_counts = run_list.map_counts(run)
            # This call is the last: if a later call failed, the snapshot's failures would be lost.
            snapshot = read_snapshot(run_list.records(run), snapshot)
            read_at = now
        except ServiceFaultError as error:  # the next iteration tries again
            if now - read_at > FAULT_SECONDS or isinstance(error, ExpiredKeysError):
                raise
            time.sleep(arguments.interval)
            continue
        progress = replace(snapshot.progress, state=state or "", **task_counts)
        if arguments.json and progress != printed:
            printed = progress
            print_json(progress)
            sys.stdout.flush()
        _update_display(display, snapshot, progress)
        if state != RUNNING and report is not None:
            return report
        if state not in {RUNNING, None}:
            ended_at = ended_at or now  # the report may follow some time after the end
            _raise_if_overdue(run, state, run_list, seconds_since_end=now - ended_at)
        time.sleep(arguments.interval)


def _update_display(display: RunDisplay, snapshot: RunSnapshot, progress: RunProgress) -> None:
    """Show the figures of a run; while a Map is running, `progress` contains its task counts."""
    plan = snapshot.plan
    if plan is None:  # the run is still being planned
        return
    if display.plan is None:
        display.planned(plan, elapsed=max(0.0, time.time() - plan.started))
    display.finished(snapshot.counts - display.counts)  # only what is new since the last read
    display.failed(snapshot.failures)  # the snapshot contains only new failures
    display.note = _describe_tasks(plan, progress)


def _raise_if_overdue(
    run: str, state: str | None, run_list: RunList, *, seconds_since_end: float
) -> None:
    """Raise `NotFoundError` if the report of an ended run should already exist."""
    limit = REPORT_SECONDS  # the report of a failed execution is written after the execution
    # A run on this machine is also `ENDED` between its plan and its first task, so the run may
    # still begin. A successful execution wrote the report before it ended.
    if state in {ENDED, SUCCEEDED}:
        limit = BEGIN_SECONDS
    if seconds_since_end > limit:
        raise _missing_report(run, run_list)


def _describe_tasks(plan: PlanSummary, progress: RunProgress) -> str:
    """Return the round, the tasks and the retries of a run as the last line of the display."""
    parts = []
    if progress.rounds > 1:
        parts.append(f"round {progress.rounds}")
    tasks = f"{progress.tasks_done:,}/{progress.tasks:,} tasks"
    if progress.running is not None:
        states = f"{progress.running:,} running, {progress.waiting:,} waiting"
        if progress.lost:
            states += f", {progress.lost:,} lost"
        tasks += f" ({states})"
    parts.append(tasks)
    if progress.first_object is not None:
        # The wait begins with the event that started the run, if there was one.
        seconds = max(0.0, progress.first_object - (plan.run.event_time or plan.started))
        parts.append(f"first object after {show_seconds(seconds)}")
    if progress.throttled or progress.retries:
        parts.append(f"{progress.throttled:,} throttled, {progress.retries:,} retried")
    return ", ".join(parts)
