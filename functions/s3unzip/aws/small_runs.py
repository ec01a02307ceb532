"""A direct run: one that the intake function plans, does and settles by itself, in memory.

The rules:

- The records are in memory until the run is left. Then they are written, the outcomes before the
  report. Neither takes the place of what another invocation has recorded, unless that is worse.
- Of a run that is COMPLETED the outcomes and the report stay: nothing is left to resume.
- An invocation that does not complete a run leaves it to another one that has planned or ended it.
"""

from msgspec.structs import replace

from s3unzip import errors
from s3unzip.aws.telemetry import logger, record_plan, record_task
from s3unzip.context import Context
from s3unzip.extraction.task import ATTEMPT_FAULTS, run_task
from s3unzip.model import Report, Request, TaskKind, Verdict
from s3unzip.rates import DIRECT_MEMBER_BYTES
from s3unzip.run_ids import check_same_archive
from s3unzip.runs.records import OUTCOMES, PAGE, REPORT, RecordedReport, RunRecords
from s3unzip.settings import Tuning
from s3unzip.settling.loop import KnownArchive, Settled, begin, look_up_run, settle
from s3unzip.settling.nested import has_nested
from s3unzip.settling.verdicts import may_replace, write_verdict
from s3unzip.stores import Stores
from s3unzip.stores.calls import Calls
from s3unzip.stores.memory import MemoryRunStore, SmallRunStores
from s3unzip.stores.ports import Tail

FIRST_PUTS = 16  # at once: one worker begins, and not a thousand together
TASK_FAULTS: tuple[type[errors.S3UnzipError], ...] = (*ATTEMPT_FAULTS, errors.RunStoppedError)


def count_held(tail: Tail, context: Context) -> int | None:
    """Return how many members the directory in an archive's last bytes has; None: not all there."""
    try:
        next(tail.locate_directory(context.policy))
    except StopIteration as done:
        if done.value.missing.length:
            return None
        members: int = done.value.entries
        return members
    except errors.RejectedError:  # the plan finds this error again and reports it
        return 0
    return None  # it asks for what is before these bytes


class SmallRun:
    """A run whose records are in memory, and the end of its archive, too."""

    def __init__(self, run: str, tail: Tail, context: Context, tuning: Tuning) -> None:
        self._began = context.clock.now()
        self._known = KnownArchive(run, tail.pin, tail)
        self._context = context
        self._memory = MemoryRunStore()
        stores: Stores = SmallRunStores(context.stores, tail, self._memory)
        platform = context.platform and replace(context.platform, direct=True)
        self.context = replace(
            context, tuning=tuning, stores=stores, platform=platform, first_calls=FIRST_PUTS
        )
        self.records = RunRecords(self._memory)

    def begin(self, request: Request, calls: Calls) -> Settled:
        """Plan the run; `calls` are of the invocation so far."""
        return begin(request, self.context, self._known, calls)

    def is_small(self, settled: Settled) -> bool:
        """Return whether this function does the planned run itself."""
        if settled.report is not None:
            return True
        plan = self.records.read_plan()
        tuning = self.context.tuning
        return (
            settled.next.next == "few"
            and plan.selected <= tuning.max_direct_members
            and max(plan.bytes_in, plan.bytes_out) <= tuning.max_direct_bytes
            and all(task.kind is TaskKind.BATCH for task in settled.next.tasks)
        )

    def work(self, settled: Settled) -> Settled:
        """Do the rounds of the run until it ends, or the time of the function is nearly over."""
        context = self.context
        while settled.report is None and context.clock.remaining() > context.tuning.margin_seconds:
            run = self.records.read_plan().run
            for task in settled.next.tasks:
                try:
                    record_task(run_task(run, task, context))
                except TASK_FAULTS as fault:  # it is in the next round
                    logger.warning("task failed", task=task.id, error=str(fault))
            settled = settle(settled.next, context)
        return settled

    def leave(self, request: Request, settled: Settled) -> Settled | None:
        """Write the records to the run store, the report last; return what came of the run.

        That may be the report of another invocation. None: the run has another plan. Of a run that
        is COMPLETED the outcomes and the report stay: nothing is left to resume.
        """
        report = settled.report
        run_store = RunRecords.open(self._context.stores, settled.next.run, self._context.calls())
        is_done = report is not None and report.verdict is Verdict.COMPLETED
        if not is_done:
            recorded = look_up_run(run_store)
            check_same_archive(settled.next.run, request.source, self._known.pin, recorded.run)
            earlier = recorded.report
            if earlier and not (report and may_replace(report, earlier, self._began)):
                return settled._replace(report=earlier, is_first=False)
            if recorded.plan is not None:
                return None
        page = self._write_objects(report, run_store)
        if report is None:
            return settled
        looked_up = None
        if is_done:  # most often there is no report, so it is written without a look
            looked_up = RecordedReport()
        page_for = None
        if page is not None:
            page_for = self.context
        written = write_verdict(
            lambda _: report, run_store, self._began, looked_up=looked_up, page_for=page_for
        )
        return Settled(settled.next, *written)

    def _write_objects(self, report: Report | None, run_store: RunRecords) -> bytes | None:
        """Write all records but the report; return the report's page, None if it needs none."""
        plan = self.records.find_plan()
        if plan is not None:
            record_plan(plan)
        objects = dict(self._memory.objects)
        objects.pop(REPORT, None)
        page = objects.pop(PAGE, None)
        is_done = report is not None and report.verdict is Verdict.COMPLETED
        if report and is_done and not has_nested(report) and not report.archive_left:
            objects = {name: objects[name] for name in objects if name.startswith(OUTCOMES)}
            page = None
        for name, data in objects.items():
            run_store.keep(name, data)
        return page


def tuned_for_one(tuning: Tuning) -> Tuning:
    """Return the tuning with which all members are PUTs of one worker.

    Batches are as long as they may be, since there is nobody to share the work with.
    """
    return replace(
        tuning,
        small_member=max(tuning.small_member, DIRECT_MEMBER_BYTES),
        batch_min_seconds=tuning.batch_seconds,
        max_workers=1,
    )
