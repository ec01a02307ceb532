"""Commands on runs: ``runs``, ``show``, ``watch``, ``resume``, ``abort``.

The runs are this machine's, or those of a deployed environment.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import click
from msgspec import convert
from msgspec.structs import replace

from s3unzip.cli.figures import print_json, show_count, show_seconds, warn
from s3unzip.cli.options import (
    Connection,
    Password,
    Power,
    RunConnection,
    environment,
    json,
    option,
    run_id,
)
from s3unzip.cli.output import (
    Aborted,
    FailedMember,
    ListedRun,
    Resumed,
    RunProgress,
    print_failed,
    print_report,
    print_runs,
)
from s3unzip.errors import NotFoundError, ServiceFaultError, UsageError
from s3unzip.local.locking import LOCK, is_at_work, known_runs, runs_of_archive
from s3unzip.model import STEM_AT, PlanSummary, Status, Verdict, run_of_execution
from s3unzip.runs.records import PAGE
from s3unzip.runs.step import STOPPED
from s3unzip.runs.watch import Items, RunEntry, RunWatcher
from s3unzip.stores.locations import runs_home

if TYPE_CHECKING:
    from collections.abc import Iterator

    from s3unzip.cli.progress import RunDisplay
    from s3unzip.model import Location, Report, Run
    from s3unzip.operate.runs import DeployedRuns
    from s3unzip.runs.records import RunRecords
    from s3unzip.runs.watch import RunSnapshot
    from s3unzip.stores.factory import StoreConfig
    from s3unzip.stores.ports import Stores

RUNNING = "RUNNING"  # states of runs
ENDED, UNREADABLE = "ENDED", "UNREADABLE"
REPORT_SECONDS = 90.0  # an execution that failed gets its report a little later
BEGIN_SECONDS = 5.0  # between the trial of the destination, or the plan, and the first task
FAULT_SECONDS = 120.0  # a service that does not answer so long ends the watch


class LocalRuns:
    """The runs that this machine did, with what `DeployedRuns` has; they have no executions."""

    def __init__(self, config: StoreConfig) -> None:
        from s3unzip.stores.factory import open_stores

        self.work_location = config.work
        self._stores = open_stores(config)

    @property
    def stores(self) -> Stores:
        """The stores that the runs read and write."""
        return self._stores

    def recent(self, limit: int) -> Iterator[RunEntry]:
        """Yield runs, the latest first."""
        for run in known_runs(self.work_location)[:limit]:
            touched = Path(self.work_location.key, "runs", run).stat().st_mtime
            yield RunEntry(run, "", touched)

    def find(self, name: str) -> str:
        """Return the whole id of a run, by its beginning or by that of its archive's name.

        Raises:
            NotFoundError: there is none.
            UsageError: there are several.
        """
        known, name = known_runs(self.work_location), run_of_execution(name)
        if name in known:
            return name
        if name == "latest":
            latest = next(filter(self._is_run, known), None)
            if latest is None:
                raise NotFoundError("there are no runs yet: s3unzip run SRC DEST begins one")
            return latest
        named = [run for run in known if run.startswith(name) or run[STEM_AT:].startswith(name)]
        found = list(filter(self._is_run, named))
        if not found:
            raise NotFoundError(f"{name}: no such run here; see s3unzip runs")
        if len(found) > 1:
            raise UsageError(f"{name}: {len(found)} runs begin with it; see s3unzip runs")
        return found[0]

    def _is_run(self, run: str) -> bool:
        """Return whether anything is on record of a run; it has its lock before its plan."""
        folder = Path(self.work_location.key, "runs", run)
        left = any(entry.name != LOCK for entry in folder.iterdir())
        return left or is_at_work(self.work_location.key, run)

    def of_archive(self, source: Location) -> list[str]:
        """Return the ids of the runs of archives named like `source`, the earliest first."""
        return runs_of_archive(self.work_location, source)

    def records(self, run: str) -> RunRecords:
        """Return the records of one run."""
        from s3unzip.runs.records import RunRecords

        return RunRecords.open(self._stores, run)

    def connections(self, run: str) -> StoreConfig:
        """Return how the run's stores were reached; a command about the run remembers it."""
        from s3unzip.stores.factory import StoreConfig

        plan = self.records(run).find_plan()
        return StoreConfig() if plan is None else convert(plan.stores, StoreConfig)

    def state(self, run: str) -> str:
        """Return `RUNNING` while a process plans the run or works on it; then `ENDED`."""
        return RUNNING if is_at_work(self.work_location.key, run) else ENDED

    def items(self, run: str) -> Items | None:
        """Return None: there is no Map."""


AnyRuns: TypeAlias = "LocalRuns | DeployedRuns"


def open_runs(environment: str | None, config: StoreConfig) -> AnyRuns:
    """Return the runs of a deployed environment, or of this machine."""
    return LocalRuns(config) if environment is None else open_deployed(environment, config)


def open_deployed(environment: str, config: StoreConfig) -> DeployedRuns:
    """Return the runs of a deployed environment.

    Raises:
        NotFoundError: it is not there.
    """
    from s3unzip.operate.runs import DeployedRuns

    return DeployedRuns(environment, replace(config, check_reachable=False))


def report_of(run: str, runs: AnyRuns) -> Report:
    """Return the report of a run.

    Raises:
        NotFoundError: it has none yet.
    """
    report = runs.records(run).find_report()
    if report is None:
        raise missing_report(run, runs)
    return report


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


def list_entries(runs: AnyRuns, limit: int) -> Iterator[ListedRun]:
    """Yield the latest runs first.

    A run of this machine is not listed if the archive was refused before there was a record.
    """
    for entry in runs.recent(limit):
        try:
            found = _list_entry(entry, runs)
        except UsageError as error:  # foreign, truncated or of tomorrow
            place = f"{runs.work_location}runs/{entry.id}/"
            found = ListedRun(entry.id, UNREADABLE, entry.started, source=place)
            warn(f"{place}: {error}")
        if found is not None:
            yield found


def _list_entry(entry: RunEntry, runs: AnyRuns) -> ListedRun | None:
    run, records = entry.id, runs.records(entry.id)
    report = records.find_report()
    # A run that is refused has ended; the note of its end is written a little later.
    refused = report is not None and report.verdict is Verdict.REJECTED
    if report is None or (entry.state == RUNNING and not refused):
        state, plan = entry.state, records.find_plan()
        if not state and plan is None and isinstance(runs, LocalRuns):
            return None  # it is being planned, or was never planned
        state = state or runs.state(run) or "UNFINISHED"
        source, destination = ("", "") if plan is None else _ends(plan.run)
        state = "UNFINISHED" if state == ENDED else state
        return ListedRun(run, state, entry.started, None, source, destination)
    source, destination = _ends(report)
    return ListedRun(
        run,
        "STOPPED" if report.reason == STOPPED else report.verdict.value,
        report.started,
        round(report.finished - report.started, 3),
        source,
        destination,
        report.members,
        report.extracted,
        report.unchanged,
        report.failed,
    )


def _ends(run: Report | Run) -> tuple[str, str]:
    return str(run.source), str(run.destination)


@dataclass(frozen=True)
class Runs(Connection):
    """List runs, the latest first."""

    env: str | None = environment()
    limit: int = option(
        "--limit", type=click.IntRange(min=1), default=50, help="How many runs to list."
    )
    json: bool = json()

    def act(self) -> int:
        """Print the runs."""
        runs = open_runs(self.env, self.config())
        listed = list_entries(runs, self.limit)
        if self.json:
            for one in listed:
                print_json(one)
            return 0
        print_runs(listed)
        return 0


@dataclass(frozen=True)
class Show(Connection):
    """Print the report of a run; the exit code is its verdict's."""

    run: str = run_id("latest")
    env: str | None = environment()
    failures: bool = option("--failures", default=False, help="List every failed member.")
    html: bool = option("--html", default=False, help="Open the report page; print where it is.")
    json: bool = json()

    def act(self) -> int:
        """Print the report; return the exit code."""
        runs = open_runs(self.env, self.config())
        name = runs.find(self.run)
        report = report_of(name, runs)
        if self.failures:
            for task, outcome in runs.records(name).each_outcome():
                if outcome.status is Status.FAILED and self.json:
                    print_json(FailedMember(task, outcome))
                elif outcome.status is Status.FAILED:
                    print_failed(outcome)
        elif self.html:
            _open_page(_page_of(report, runs, self.env))
        elif self.json:
            print_json(report)
        else:
            print_report(
                report, sys.stdout, environment=self.env, reached=runs.connections(name).typed()
            )
        return report.verdict.exit_code


def _page_of(report: Report, runs: AnyRuns, environment: str | None) -> Path:
    """Return where the page of a run is on this machine, fetched or made if it is elsewhere."""
    from s3unzip.context import Context
    from s3unzip.settling.report import render_page
    from s3unzip.stores.clock import LocalClock
    from s3unzip.stores.files import PRIVATE, make_folders

    run, home = report.run, Path(runs_home().key)
    if environment is None:
        page = home / "runs" / run / PAGE
        if page.is_file():
            return page
        raise NotFoundError(f"{run}: has no page; s3unzip resume {run} writes it")
    page = home / "pages" / f"{run}.html"
    make_folders(page.parent, PRIVATE)
    try:
        body = runs.records(run).read_page()
    except NotFoundError:  # a small archive that was extracted at once keeps none
        body = render_page(report, Context(runs.stores, LocalClock(), environment=environment))
    page.write_bytes(body)
    return page


def _open_page(page: Path) -> None:
    sys.stdout.write(f"{page}\n")
    if sys.stdout.isatty():
        import webbrowser

        webbrowser.open(page.as_uri())


@dataclass(frozen=True)
class Resume(RunConnection, Password, Power):
    """Continue a run: do the tasks that did not end.

    With --failed, try the failed members again; the other members are not touched. Fix what made
    these fail first.
    """

    run: str = run_id()
    env: str | None = environment()
    failed: bool = option("--failed", default=False, help="Try the failed members again.")
    json: bool = json()

    def act(self) -> int:
        """Do what is left of the run; return the exit code."""
        return self._resume_here() if self.env is None else self._resume_there(self.env)

    def _resume_there(self, env: str) -> int:
        deployed = open_deployed(env, self.config())
        name = deployed.find(self.run)
        if is_completed(name, deployed, json=self.json):
            return 0
        deployed.resume(name, failed=self.failed)
        words = f"resumed: s3unzip watch {name}{deployed.found_by}"
        _print_words(words, Resumed(name, env), self.json)
        return 0

    def _resume_here(self) -> int:
        """Do what is left of a run of this machine, print its report; return the exit code."""
        from s3unzip.api.options import make_policy
        from s3unzip.cli.progress import RunDisplay
        from s3unzip.local.machine import Machine, Setup
        from s3unzip.stores.factory import check_reachable

        tuning, secret = self.tuning(self.processes), self.read_password()
        runs = LocalRuns(self.config())
        name = runs.find(self.run)
        summary = read_summary(name, runs)
        planned = summary.run
        if is_completed(name, runs, json=self.json):
            return 0
        if planned.options.password_ref is not None and secret is None:
            raise UsageError(f"{planned.id} was started with a password: give --password-file")
        policy = make_policy(planned.options, secret, planned.destination)
        display, stores = RunDisplay(), recall_config(self, runs.connections(name))
        check_reachable(stores, planned.source, planned.destination)
        setup = Setup(stores, policy, tuning, self.processes)
        with Machine(setup, planned.source, planned.destination, display) as machine, display:
            report = machine.resume(name, display.planned, failed=self.failed)
        if self.json:
            print_json(report)
        # No rates: it was not at work all the time since its start.
        print_report(report, rates=False, reached=stores.typed())
        return report.verdict.exit_code


def is_completed(run: str, runs: AnyRuns, *, json: bool) -> bool:
    """Say whether nothing is left of a run, and tell it."""
    from s3unzip.settling.after_success import is_left

    report = runs.records(run).find_report()
    if report is None or report.verdict is not Verdict.COMPLETED or is_left(report):
        return False
    sys.stderr.write(f"{run}: COMPLETED already, nothing is left to do\n")
    if json:
        print_json(report)
    return True


def read_summary(run: str, runs: AnyRuns) -> PlanSummary:
    """Return what the plan of a run found.

    Raises:
        NotFoundError: the run was rejected, or never planned.
    """
    try:
        return runs.records(run).read_plan()
    except NotFoundError as error:
        raise NotFoundError(
            f"{run}: has no plan, because the archive was refused or planning failed; start again "
            "with s3unzip run"
        ) from error


# Of two options that exclude each other, the one that is typed counts.
RIVALS = {"unsigned": "request_payer", "request_payer": "unsigned"}


def recall_config(connection: Connection, known: StoreConfig) -> StoreConfig:
    """Return how the stores of a run are reached: as is typed now, else as when it began.

    Args:
        connection: the options of this command.
        known: what the run's records have.
    """
    from s3unzip.stores.factory import OPTIONS

    context, config = click.get_current_context(), connection.config()
    sources = {
        name: context.get_parameter_source(text.lstrip("-").replace("-", "_"))
        for name, text in OPTIONS.items()
    }
    typed = {name for name, one in sources.items() if one is not None and one.name == "COMMANDLINE"}
    recalled = {
        name: getattr(known, name)
        for name in (*OPTIONS, "other_hosts")
        if getattr(known, name) and name not in typed and RIVALS.get(name) not in typed
    }
    return replace(config, **recalled)


@dataclass(frozen=True)
class Abort(Connection):
    """Stop a run and drop its incomplete uploads.

    Members that are already written stay.
    """

    run: str = run_id()
    env: str | None = environment()
    json: bool = json()

    def act(self) -> int:
        """Stop the run."""
        from s3unzip.context import Context
        from s3unzip.local.machine import drop_uploads
        from s3unzip.runs.step import Step
        from s3unzip.stores.clock import LocalClock

        stopped = False
        runs: AnyRuns
        if self.env is None:
            here = LocalRuns(self.config())
            name = here.find(self.run)
            runs = LocalRuns(recall_config(self, here.connections(name)))
        else:
            runs = deployed = open_deployed(self.env, self.config())
            name = deployed.find(self.run)
            stopped = deployed.stop(name)
            if stopped and not self.json:
                sys.stdout.write("execution stopped\n")
        # Without a plan it was stopped while it was planned, and the report function ends it.
        # A small archive that was extracted at once has its outcomes and its report alone.
        has_ended = stopped or runs.records(name).find_report() is not None
        summary = runs.records(name).find_plan() if has_ended else read_summary(name, runs)
        here_now = Context(stores=runs.stores, clock=LocalClock())
        count = 0
        if summary is not None:
            count = drop_uploads(Step(summary.run, "abort", here_now, here_now.calls()))
        words = f"{name}: {show_count(count, 'incomplete upload')} dropped"
        _print_words(words, Aborted(name, self.env, stopped=stopped, uploads=count), self.json)
        return 0


def _print_words(words: str, value: object, json: bool) -> None:
    if json:
        print_json(value)
    else:
        sys.stdout.write(f"{words}\n")


@dataclass(frozen=True)
class Watch(Connection):
    """Follow a run until it ends; the exit code is its verdict's.

    With --json, a line each time that a figure changes; the last line is the report.
    """

    run: str = run_id("latest")
    env: str | None = environment()
    every: float = option(
        "--every",
        type=click.FloatRange(min=0.1),
        default=1.0,
        help="Seconds between two updates.",
    )
    json: bool = json()

    def act(self) -> int:
        """Follow the run, print its report; return the exit code."""
        from s3unzip.cli.progress import RunDisplay

        runs = open_runs(self.env, self.config())
        name = runs.find(self.run)
        with RunDisplay() as display:
            report = _Watch(name, runs, display, json=self.json).follow(self.every)
        if self.json:
            print_json(report)
        print_report(report, environment=self.env, reached=runs.connections(name).typed())
        return report.verdict.exit_code


class _Watch:
    """One run being watched."""

    def __init__(self, run: str, runs: AnyRuns, display: RunDisplay, *, json: bool) -> None:
        self._run = run
        self._runs = runs
        self._display = display
        self._watcher = RunWatcher(runs.records(run))
        self._json = json
        self._printed: RunProgress | None = None
        self._told: Counter[str] = Counter()
        self._planned = False
        self._ended: float | None = None

    def follow(self, every: float) -> Report:
        """Look until the run has its report; return it.

        Raises:
            NotFoundError: the execution, or the process on this machine, left no report.
            ServiceFaultError: a service did not answer for two minutes.
        """
        answered = time.monotonic()
        while True:
            try:
                report = self._look()
                answered = time.monotonic()
            except ServiceFaultError:
                if time.monotonic() - answered > FAULT_SECONDS:
                    raise
                report = None
            if report is not None:
                return report
            time.sleep(every)

    def _look(self) -> Report | None:
        """Show what is new; return the report if the run has ended."""
        # The state first: a report that is there when a run had ended before is its last one.
        state = self._runs.state(self._run)
        report = self._runs.records(self._run).find_report()
        seen = self._watcher.read()
        items = self._runs.items(self._run) if state == RUNNING else None
        if self._json:
            self._print(_progress(self._run, state, seen, items))
        self._show(seen, items)
        if state == RUNNING:
            return None
        if report is None and state is not None:
            self._await_report(state)
        return report

    def _await_report(self, state: str) -> None:
        """Wait a little longer: an execution that was stopped is settled after its end.

        On one machine a run was killed if it has no report; or it is about to begin.
        """
        if self._ended is None:
            self._ended = time.monotonic()
        waited = time.monotonic() - self._ended
        if state == ENDED and waited > BEGIN_SECONDS:
            raise missing_report(self._run, self._runs)
        if waited > REPORT_SECONDS:
            raise NotFoundError(f"{self._run}: its execution ended and left no report")

    def _print(self, line: RunProgress) -> None:
        """Print a line if it is not the same as the one before."""
        if line != self._printed:
            self._printed = line
            print_json(line)
            sys.stdout.flush()

    def _show(self, seen: RunSnapshot, items: Items | None) -> None:
        summary = seen.summary
        if summary is None:
            return
        if not self._planned:
            self._planned = True
            self._display.planned(summary, gone=max(0.0, time.time() - summary.started))
        self._display.finished(seen.counts - self._told)
        self._told = Counter(seen.counts)
        self._display.failed([failure for _, failure in seen.failures])
        self._display.note(_note(summary, seen, items))


def _progress(run: str, state: str | None, seen: RunSnapshot, items: Items | None) -> RunProgress:
    """Return what is known of a run as a line of JSON has it."""
    summary, counts = seen.summary, seen.counts
    if summary is None:
        return RunProgress(run, state or "")
    return RunProgress(
        run,
        state or "",
        summary.selected,
        extracted=counts["extracted"],
        unchanged=counts["unchanged"],
        failed=counts["failed"],
        bytes_written=counts["bytes_written"],
        tasks=summary.tasks,
        tasks_done=seen.tasks,
        rounds=seen.rounds,
        running=None if items is None else items.running,
        waiting=None if items is None else items.waiting,
        lost=None if items is None else items.failed,
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
