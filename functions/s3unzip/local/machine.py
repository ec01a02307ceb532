"""Runs on this machine: the loop of `settling.loop`, with worker processes for the tasks.

A `Machine` holds the stores, workers and locks that the runs of one command share. The records of a
run are the same as on AWS, but they are kept in a folder.
"""

from __future__ import annotations

import logging
import sys
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import cached_property, partial
from typing import Self

from msgspec.structs import asdict, replace

from s3unzip.context import Context, Progress
from s3unzip.errors import (
    InterruptedRunError,
    S3UnzipError,
    ServiceFaultError,
    UnreadableRecordError,
    UsageError,
)
from s3unzip.local.attempts import open_context
from s3unzip.local.destination_objects import check_destination, make_folders
from s3unzip.local.process_setup import count_processors
from s3unzip.local.recovery import drop_leftovers, forget_lost, remove_leftovers
from s3unzip.local.runs import find_latest_time, lock_run, make_latest, note_start
from s3unzip.local.workers import Workers, is_stopped
from s3unzip.model import (
    NestedRun,
    Next,
    PlanSummary,
    Report,
    Request,
    Run,
    Stop,
    TaskKind,
    Verdict,
)
from s3unzip.planning.cut import choose_workers
from s3unzip.planning.plan import preview_tasks
from s3unzip.planning.reading import Reading, read_tail
from s3unzip.planning.select import check_selection
from s3unzip.pricing import Job, Platform, local
from s3unzip.run_ids import run_id
from s3unzip.runs.records import NESTED, REPORT, RunRecords
from s3unzip.runs.step import STOPPED, Step, stop_for
from s3unzip.settings import Tuning, machine_tuning, make_tuning
from s3unzip.settling import loop
from s3unzip.settling.nested import (
    EXTRACTED,
    find_nested,
    first_budget,
    has_nested,
    nested_request,
    subtract_run,
)
from s3unzip.settling.report import finish_source, report_unplanned
from s3unzip.stores.config import StoreConfig
from s3unzip.stores.open import reaches_aws, sign_in
from s3unzip.stores.ports import Clock
from s3unzip.zip import Policy

_log = logging.getLogger("s3unzip.machine")

SERVICE_FAULT = "service-fault"  # reason code if a run ended because a store did not answer


class Machine:
    """The runs of one command; a context manager that ends its workers and unlocks its last run.

    Args:
        context: the context of this process; its progress receives the counts of the workers.
        stores: how this process reaches the stores; its `work` is the folder with the records.
        workers: the workers that perform the tasks.
    """

    def __init__(self, context: Context, stores: StoreConfig, workers: Workers) -> None:
        self.context = context
        self._config = stores
        self._home = stores.work.key
        self.progress = context.progress or Progress()
        self._workers = workers
        # The outermost run, if this machine extracts nested archives. Stopping the outermost run
        # also stops this machine.
        self.outermost_run: RunRecords | None = None
        self._resources = ExitStack()  # the workers, the lock, and the machine for nested archives
        # Holds the lock of the latest run until the next is locked. On exit, the workers end first.
        self._run_lock = self._resources.enter_context(ExitStack())
        self._resources.callback(workers.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._resources.close()

    def run(
        self,
        request: Request,
        planned: Callable[[PlanSummary], None] | None = None,
        warn: Callable[[str], object] | None = None,
        max_cost: float | None = None,
    ) -> Report:
        """Extract one archive from scratch; return the report. To continue a run, call `resume`.

        Args:
            request: archive, destination and options.
            planned: called with the plan before the first task begins; an exception stops the run.
            warn: called with a sentence for each glob that matches no member.
            max_cost: the maximum estimated cost in dollars. None means no limit.
        """
        context = self.context
        calls = context.calls()
        # Each of the two stores may ask the user for an MFA code, so both are reached before
        # progress is shown.
        tail = read_tail(context.stores.source(request.source), request.source, context, calls)
        sign_in(self._config, request.destination)
        self.progress.phase("plan")
        # A web server might not report when the archive was modified. In this case, use the time in
        # the id of an earlier run of this version, so that both runs have the same id.
        if tail.modified is None:
            recorded_time = find_latest_time(
                self._config.work, run_id(request, tail.pin, modified=None)
            )
            tail = tail._replace(modified=recorded_time or context.clock.now())
        run = run_id(request, tail.pin, tail.modified)

        def prepare(reading: Reading) -> None:
            """Raise an error if the run may not begin; else delete an earlier run's records."""
            check_selection(request.options, reading.index, warn)
            if max_cost is not None:
                self._check_cost(request, reading, max_cost)
            check_destination(request, reading, context)
            self._begin_anew(run)

        begun_run = loop.begin_run(
            request, context, loop.KnownArchive(tail=tail), calls, check=prepare, planned=planned
        )
        return self._do_rounds(begun_run)

    def _begin_anew(self, run: str) -> None:
        """Lock a run, and delete the records and uploads of any earlier run with the same id."""
        if self.outermost_run is not None and is_stopped(self.outermost_run):
            raise KeyboardInterrupt  # handled in the same way as Ctrl-C
        self._lock(run)
        note_start(self._home, run)
        calls = self.context.calls()
        records = RunRecords.open(self.context.stores, run, calls)
        with suppress(UnreadableRecordError):  # without the plan, the run's uploads are unknown
            plan = records.find_plan()
            if plan is not None:
                drop_leftovers(Step(plan.run, self.context, calls))
        records.delete_records()

    def _check_cost(self, request: Request, reading: Reading, max_cost: float) -> None:
        from s3unzip.estimate import check_budget, estimate  # noqa: PLC0415 - rarely needed

        tasks = preview_tasks(request, reading, self.context)
        check_budget(
            estimate(
                request,
                tasks,
                describe_machine(request, self._config, self._workers.processes),
                self.context.tuning,
                workers=choose_workers(tasks, self.context.tuning, request.destination.store),
            ),
            max_cost,
            limit_name="max_cost",
        )

    def resume(self, run: str, *, failed: bool = False) -> Report:
        """Continue a run until it ends; return its report.

        Args:
            run: the id of the run.
            failed: whether to extract the failed members again.
        """
        self._lock(run)
        plan = RunRecords.open(self.context.stores, run).read_plan()
        self.progress.planned(plan)
        run_step = Step(plan.run, self.context, self.context.calls())
        try:
            self.progress.phase("check")
            remove_leftovers(run_step)
            forget_lost(run_step, self._home)
            note_start(self._home, run)
        except UnreadableRecordError as damage:
            # If a record is damaged, the lost members cannot be determined. This report of the
            # damage makes `loop.resume` plan the run again and extract all its members.
            run_step.records.store.delete([REPORT])
            run_step.records.put_report(
                report_unplanned(
                    run, plan.run, plan.run.pin, stop_for(damage), now=run_step.started
                ),
                over=None,  # the old report was deleted above
            )
        return self._do_rounds(loop.resume(run, self.context, failed=failed))

    def run_nested(self, report: Report, max_cost: float | None = None) -> list[NestedRun]:
        """Extract the archives that a run extracted, level by level; show and return the results.

        All nested archives share one budget: each can use what the archives before it have left.
        The results are also written to the ``nested.jsonl`` of each outer run. The file of the
        outermost run is written last, so its existence shows that no nested archive was skipped. A
        nested archive whose run would cost more than `max_cost` dollars is not extracted.
        """
        if not has_nested(report):
            return []
        self._inner.outermost_run = RunRecords.open(self.context.stores, report.run)
        budget = report.options.nested_budget or first_budget(self.context.tuning)
        outer_reports = deque([report])
        ended: list[tuple[RunRecords, list[NestedRun]]] = []
        try:
            while outer_reports:
                records = RunRecords.open(self.context.stores, outer_reports.popleft().run)
                # A file from an earlier call would mean that all nested archives have been handled.
                records.store.delete([NESTED])
                run = records.read_plan().run
                # The results of the refused archives come first.
                outcomes, results = find_nested(run, self.context, budget.archives)
                for refusal in results:
                    self.progress.nested(refusal)
                for outcome in outcomes:
                    result, nested = self._run_inner(
                        nested_request(run, outcome.key, budget), report, max_cost
                    )
                    if nested is not None:
                        budget = subtract_run(budget, nested, self.context)
                        if has_nested(nested):
                            outer_reports.append(nested)
                    results.append(result)
                    self.progress.nested(result)
                ended.append((records, results))
            for records, results in reversed(ended):  # the outermost run is last
                records.write_nested(results)
        finally:
            make_latest(self._home, report.run)  # the runs of the nested archives began later
        return [result for _, results in ended for result in results]

    def _run_inner(
        self, request: Request, outermost: Report, max_cost: float | None
    ) -> tuple[NestedRun, Report | None]:
        """Extract a nested archive; return the result, and the report of the run if it began."""
        try:
            report = self._inner.run(request, max_cost=max_cost)
        except (InterruptedRunError, KeyboardInterrupt) as interrupt:
            raise InterruptedRunError(
                f"stopped: not all archives inside {outermost.source} have been extracted; "
                f"continue with: s3unzip resume {outermost.run}"
            ) from interrupt
        except S3UnzipError as error:
            return NestedRun(request.source.key, reason="not-begun", message=str(error)), None
        return NestedRun(
            request.source.key,
            report.run,
            report.verdict,
            reason=report.reason,
            message=report.message,
        ), report

    @cached_property
    def _inner(self) -> Machine:
        """The machine for the nested archives, which are read from the destination.

        The outer machine (`self`) keeps the lock of the outermost run. The workers are shared if
        the same options are used to reach the source and the destination.
        """
        config = self._config.at_destination()
        if config == self._config:  # share the context and the workers
            return self._resources.enter_context(Machine(self.context, config, self._workers))
        return self._resources.enter_context(
            open_machine(
                config,
                self.context.policy,
                self.context.tuning,
                processes=self._workers.processes,
                progress=self.context.progress,
            )
        )

    def _lock(self, run: str) -> None:
        """Unlock the run that was locked last, and lock `run` against other processes."""
        self._run_lock.close()
        self._run_lock.enter_context(lock_run(self._home, run))

    def _do_rounds(self, latest: loop.StepResult) -> Report:
        """Run the rounds of a run one after another; return its report.

        `latest` is the result of the step that planned or resumed the run.

        Raises:
            InterruptedRunError: after Ctrl-C or a recorded stop; finished members are recorded.
        """
        context = self.context
        records = RunRecords.open(context.stores, latest.next.run)
        if latest.report is not None and records.find_plan() is None:
            return latest.report  # the archive was refused
        run = records.require_plan().run
        first_round = latest.next.round  # above 0 if the run was resumed
        context.stores.end_startup()
        started = context.clock.now()
        try:
            while latest.report is None:
                latest = self._do_round(
                    run, latest.next, records, is_first=latest.next.round == first_round
                )
                if latest.report is not None and latest.report.reason == STOPPED:
                    raise KeyboardInterrupt  # noqa: TRY301 - handled in the same way as Ctrl-C
            make_folders(run, records, context)
            if self._workers.has_lost_process and latest.report.verdict in EXTRACTED:
                with suppress(S3UnzipError):  # the members are complete even if leftovers remain
                    drop_leftovers(Step(run, context, context.calls()))
        except KeyboardInterrupt as interrupt:
            raise _report_interruption(interrupt, latest, run, context) from interrupt
        except UnreadableRecordError as damage:
            loop.settle_failed(
                run.id,
                stop_for(damage),
                context,
                began=started,
                ended=context.clock.now(),
                request=run,
                pin=run.pin,
            )
            return records.read_report()
        return finish_source(run.after_success, latest.report, context)

    def _do_round(
        self, run: Run, state: Next, records: RunRecords, *, is_first: bool
    ) -> loop.StepResult:
        # The tasks of a large round are not in `state`, but in the round's record.
        tasks = state.tasks or list(records.read_round(state.round))
        has_scans = any(task.kind is TaskKind.SCAN for task in tasks)
        self.progress.phase("scan" if has_scans else "extract")
        fault = self._workers.do_all(
            run, tasks, state.workers, self.outermost_run or records, new_run=is_first
        )
        self.progress.phase("link" if has_scans else "report")
        return _settle_round(state, records, self.context, fault)


def open_machine(
    stores: StoreConfig,
    policy: Policy,
    tuning: Tuning | None,
    processes: int | None,
    progress: Progress | None = None,
) -> Machine:
    """Return a machine with workers.

    Args:
        stores: how this process and the workers reach stores.
        policy: the limits for archives.
        tuning: the tuning of the machine; None selects the defaults for the number of processes.
        processes: the maximum number of processes, including this one; None selects one for each
            processor.
        progress: receives the counts of the workers.
    """
    if processes is None:
        processes = count_processors()
    if processes < 1:
        raise UsageError(f"workers must be at least 1; it is {processes}")
    # The executable can be another program that embeds Python, such as uWSGI or a program made by
    # PyInstaller. Such a program cannot start a Python process.
    if "py" not in (sys.executable or "").rpartition("/")[2].lower() or hasattr(sys, "frozen"):
        processes = 1
    tuning = tuning or make_tuning(machine_tuning(processes))
    tuning = make_tuning(asdict(tuning))  # only checks the values, which a user may have chosen
    context = open_context(stores, policy, tuning, clock=Clock(), progress=progress)
    # Only this process checks that the stores can be reached.
    open_worker_context = partial(
        open_context, replace(stores, check_reachable=False), policy, tuning
    )
    return Machine(context, stores, Workers(processes, context, open_worker_context))


def _settle_round(
    state: Next, records: RunRecords, context: Context, fault: ServiceFaultError | None
) -> loop.StepResult:
    """Settle a round; end the run if a store does not answer.

    Args:
        state: the state of the run before the round.
        records: the records of the run.
        context: the context of this process.
        fault: the error of a store that did not answer during the round; None if all answered.
    """
    if fault is not None and records.find_stop() is None:
        records.write_stop(Stop(Verdict.FAILED, SERVICE_FAULT, str(fault)))
    try:
        return loop.settle(state, context)
    except ServiceFaultError as new_fault:
        if fault is not None:
            raise
        # Settle the round once more. The recorded stop then ends the run with a report.
        return _settle_round(state, records, context, new_fault)


def _report_interruption(
    interrupt: KeyboardInterrupt, latest: loop.StepResult, run: Run, context: Context
) -> InterruptedRunError:
    advice = f"continue with: s3unzip resume {run.id}"
    if isinstance(interrupt.__context__, KeyboardInterrupt):
        # After a second Ctrl-C, the workers have not recorded everything that they did.
        return InterruptedRunError(f"stopped; {advice}")
    records = RunRecords.open(context.stores, run.id)
    if not is_stopped(records):
        records.write_stop(Stop(Verdict.FAILED, STOPPED, "the run was stopped by a signal"))
    if latest.report is None:
        # Because of the recorded stop, this call writes the report.
        loop.settle(latest.next, context)
    report = records.read_report()
    return InterruptedRunError(
        f"stopped: {report.extracted + report.unchanged:,} of {records.read_plan().selected:,} "
        f"members are in {run.destination}; {advice}"
    )


def describe_machine(job: Job, stores: StoreConfig, workers: int) -> Platform:
    """Return this machine's rates and prices for an estimate of a run.

    Args:
        job: the source and the destination of the run.
        stores: how the run's stores are reached.
        workers: the number of processes.
    """
    return local(
        workers=workers,
        priced_reads=job.source.store.is_billed and reaches_aws(stores),
        priced_writes=job.destination.store.is_billed and reaches_aws(stores.at_destination()),
    )
