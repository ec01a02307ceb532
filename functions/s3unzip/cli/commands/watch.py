"""``watch``: follow a run that goes on somewhere else, to its verdict."""

from __future__ import annotations

import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer

from s3unzip.cli.options import archive_options as o
from s3unzip.cli.options.connections import Connection
from s3unzip.cli.terminal.figures import show_seconds
from s3unzip.cli.terminal.json_lines import RunProgress, print_json
from s3unzip.errors import NotFoundError, ServiceFaultError

if TYPE_CHECKING:
    from s3unzip.cli.runs import Runs
    from s3unzip.cli.terminal.progress import RunDisplay
    from s3unzip.model import PlanSummary, Report
    from s3unzip.runs.watch import Items, RunSnapshot

RUNNING, WAITING = "RUNNING", "WAITING"
REPORT_SECONDS = 90.0  # an execution that failed gets its report a little later
BEGIN_SECONDS = 5.0  # between the trial of the destination, or the plan, and the first task
FAULT_SECONDS = 120.0  # a service that does not answer so long ends the watch


def watch_run(
    connection: Connection,
    run: o.RunId = "latest",
    env: o.Env = None,
    every: Annotated[
        float, typer.Option("--every", min=0.1, help="Seconds between two updates.")
    ] = 1.0,
    json: o.Json = False,
) -> int:
    """Follow a run until it ends; the exit code is its verdict's.

    With --json, a line each time that a figure changes; the last line is the report.
    """
    from s3unzip.cli.runs import open_runs
    from s3unzip.cli.terminal.output import print_report
    from s3unzip.cli.terminal.progress import RunDisplay

    runs = open_runs(env, connection.config())
    name = runs.find(run)
    with RunDisplay() as display:
        report = _Watch(name, runs, display, json=json).follow(every)
    if json:
        print_json(report)
    print_report(report, environment=env, connections=runs.connections(name))
    return report.verdict.exit_code


class _Watch:
    """One run being watched."""

    def __init__(self, run: str, runs: Runs, display: RunDisplay, *, json: bool) -> None:
        from s3unzip.runs.watch import RunWatcher

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
        seen = self._watcher.look()
        items = self._runs.items(self._run) if state == RUNNING else None
        if self._json:
            self._print(_progress(self._run, state, seen, items))
        self._show(seen, items)
        if state in (RUNNING, WAITING):
            return None
        if report is None and state is not None:
            self._await_report(state)
        return report

    def _await_report(self, state: str) -> None:
        """Wait a little longer: an execution that was stopped is settled after its end.

        On one machine a run was killed if it has no report; or it is about to begin.
        """
        from s3unzip.cli.runs import ENDED, missing_report

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
        scans=summary.scans,
        scans_done=seen.scans,
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
    if summary.scans and not seen.tasks:
        parts.append(f"{seen.scans:,}/{summary.scans:,} scans")
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
