"""Taking an archive: a direct run where it is small, else its plan and its execution.

An archive whose whole directory is in its last bytes is claimed, and then
extracted or planned here. The directory of any other is read by the planner, a
state of its execution.
"""

from __future__ import annotations

import uuid
from functools import partial
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from s3unzip.aws.admission.bids import planned_bid, unplanned_bid
from s3unzip.aws.admission.door import Start
from s3unzip.aws.admission.opening import open_door
from s3unzip.aws.budget import refuse_cost
from s3unzip.aws.ending.after_success import end_source_again
from s3unzip.aws.environment import open_worker
from s3unzip.aws.executions import planned_input, read_inline_lists, unplanned_input
from s3unzip.aws.intake.claims import Hold, claim_name, take_claim
from s3unzip.aws.intake.direct_run import publish, run_direct
from s3unzip.aws.intake.planner import refuse
from s3unzip.aws.intake.rechecks import begin_recheck
from s3unzip.aws.refusals import is_refused
from s3unzip.aws.telemetry import bind_run, logger, record_plan
from s3unzip.direct.bundle import Claim, Event, pack
from s3unzip.direct.held_source import DirectStores
from s3unzip.direct.memory_store import MemoryRunStore
from s3unzip.direct.plan import holds_directory, plan_direct
from s3unzip.errors import ClaimedError, NotFoundError, SourceChangedError
from s3unzip.model import Report, Run, decode, run_id
from s3unzip.planning.cutting import first_workers
from s3unzip.planning.plan_writer import make_plan
from s3unzip.planning.reading import read_tail
from s3unzip.run_files import CLAIMS, REPORT, RUN
from s3unzip.runs.records import RunRecords
from s3unzip.settling.nested import nested_requests
from s3unzip.zip import count_entries

if TYPE_CHECKING:
    from s3unzip.aws.intake.claims import Taken
    from s3unzip.aws.intake.messages import Message
    from s3unzip.context import Context
    from s3unzip.estimate import Platform
    from s3unzip.model import Request
    from s3unzip.stores.calls import Calls
    from s3unzip.stores.ports import Tail


class Intake(Struct, frozen=True):
    """One archive's event, and what was read of the archive."""

    request: Request
    tail: Tail
    message: Message
    context: Context
    function: Platform  # the invoked function as a platform of the estimate
    calls: Calls  # so far

    @property
    def run(self) -> str:
        """The id of the run of the version that was read."""
        return run_id(self.request, self.tail.pin)


def take_archive(request: Request, message: Message, context: Context, function: Platform) -> None:
    """Extract what is there now, whatever the event said, or start its run.

    Args:
        request: what the event asks for.
        message: of the queue, that has the event.
        context: of the invocation.
        function: the invoked function as a platform of the estimate.

    Raises:
        ClaimedError: an earlier attempt of the same message may still be at work.
        UsageError, StorageError, ServiceFaultError: the message is to come again.
    """
    calls = context.calls()
    source = context.stores.source(request.source)
    try:
        tail = read_tail(source, request.source, context, calls)
    except NotFoundError:
        logger.info("archive is gone", source=str(request.source))
        return
    begun = begin_recheck(request, tail.pin, context, calls)
    if begun is None:
        return
    intake = Intake(begun, tail, message, context, function, calls)
    try:
        _take_version(intake)
    except SourceChangedError:  # the newer one has an event of its own
        logger.info("archive changed while it was planned", source=str(request.source))


def _take_version(intake: Intake) -> None:
    """Claim the version that was read and plan it here, or leave it to whom it belongs."""
    context, tail = intake.context, intake.tail
    if tail.modified is None or not holds_directory(tail, context):
        _start_unplanned(intake)
        return
    if not context.tuning.max_direct_members:  # only direct runs need claims
        if is_refused(intake.request, intake.run, context, intake.calls):
            logger.info("run was refused", run=intake.run)
        else:
            _plan_execution(intake)
        return
    until = context.clock.now() + context.clock.remaining()
    message = intake.message
    claim = Claim(intake.run, message.id, until, message.attempts, token=uuid.uuid4().hex)
    _take_claimed(intake, Hold(claim_name(intake.run, tail.modified), claim, message.is_copy))


def _take_claimed(intake: Intake, hold: Hold) -> None:
    """Claim the run and do it, or do what its holder may have left."""
    context, claim = intake.context, hold.claim
    store = open_worker().stores.run_store(CLAIMS, intake.calls)
    taken = take_claim(store, hold.name, claim)
    if taken is None:
        _plan_here(intake, hold)
        return
    if not _is_held(intake, taken.claim):
        if not taken.files:
            _take_over(intake)
            return
        _tell_again(intake, hold.name, taken)
    if taken.files and intake.request.after_success is not None:
        records = RunRecords.open(open_worker().stores, intake.run, intake.calls)
        end_source_again(records, context, decode(taken.files[RUN], Run))
    logger.info("run is known", run=intake.run)


def _is_held(intake: Intake, claim: Claim) -> bool:
    """Say whether the run belongs to another message whose invocation may be at work.

    If the invocation of a message's first delivery is killed, the message comes again. So
    duplicates of such a message end at once.

    Raises:
        ClaimedError: the message must come again after the claim. It is the holder's own, or the
            holder's may have had its last delivery.
    """
    left = claim.until - intake.context.clock.now()
    if left < 0 or claim.event is not Event.NOTHING:
        return False
    if claim.holder == intake.message.id or claim.attempt > 1:
        raise ClaimedError(f"{claim.run}: another invocation may be at work", left)
    return True


def _take_over(intake: Intake) -> None:
    """Let an execution do what an invocation left that was killed."""
    if is_refused(intake.request, intake.run, intake.context, intake.calls):
        logger.info("run was refused", run=intake.run)
        return
    if _start_unplanned(intake) is not Start.KNOWN:  # else a late duplicate
        logger.warning("an invocation was lost", run=intake.run)


def _tell_again(intake: Intake, name: str, taken: Taken) -> None:
    """Write the report and send the event of a run that ended, if the holder may not have done so.

    The message is the holder's own, a late duplicate, or an operator's: a dead letter that was
    moved back is a new message.
    """
    config, claim = open_worker(), taken.claim
    if claim.event is Event.SENT:
        return
    records = RunRecords.open(config.stores, claim.run, intake.calls)
    is_own = claim.holder == intake.message.id or claim.attempt > 1
    if is_own or claim.event is Event.MISSING or records.find_report() is None:
        report = decode(taken.files[REPORT], Report)
        publish(report, _requests_inside(intake, report, taken), config, intake.context)
        body = pack(taken.files, replace(claim, event=Event.SENT))
        config.stores.run_store(CLAIMS, intake.calls).write(name, [body])


def _requests_inside(intake: Intake, report: Report, taken: Taken) -> list[Request]:
    """Return the requests for the archives inside an archive whose records are a bundle."""
    context = intake.context
    stores = DirectStores(context.stores, intake.tail, MemoryRunStore(taken.files))
    run = decode(taken.files[RUN], Run)
    return list(nested_requests(run, report, replace(context, stores=stores)))


def _plan_here(intake: Intake, hold: Hold) -> None:
    """Do a claimed archive at once where that is sooner, else by an execution."""
    config, context, request = open_worker(), intake.context, intake.request
    plan = plan_direct(request, intake.tail, context, intake.function)
    if plan is not None and refuse_cost(config, plan.context, plan.summary, plan.tasks) is None:
        bind_run(plan.summary.run)
        record_plan(plan.summary, request)
        run_direct(plan, hold, context)
    else:
        _plan_execution(intake)


def _plan_execution(intake: Intake) -> None:
    """Refuse an archive, or write its plan and start its execution."""
    config, context, request = open_worker(), intake.context, intake.request
    # The same bytes put again where the bucket has no versions are the same run.
    records = RunRecords.open(context.stores, intake.run, intake.calls)
    summary = records.find_summary()
    known = summary is not None
    if summary is None:
        afford = partial(refuse_cost, config, context)
        made = make_plan(request, context, afford=afford, calls=intake.calls, tail=intake.tail)
        record_plan(made, request)
        if isinstance(made, Report):
            refuse(made, context)
            return
        summary = made
    bind_run(summary.run)
    inline = read_inline_lists(summary, records, config.tuning)
    payload = planned_input(config.work, summary, inline)
    bid = planned_bid(summary, config, context.clock.now())
    start = open_door(context).start(bid, payload)
    logger.info(start.value, tasks=summary.tasks)
    if known and request.after_success is not None:
        end_source_again(records, context)


def _start_unplanned(intake: Intake) -> Start:
    """Start an execution that plans first; there is one of each name."""
    request, context = intake.request, intake.context
    bid = unplanned_bid(intake.run, request, open_worker(), context.clock.now())
    tail = intake.tail
    members = count_entries(tail.data) or 0
    workers = first_workers(members, tail.pin.size, context.tuning)
    start = open_door(context).start(bid, unplanned_input(request, workers))
    logger.info(start.value, run=intake.run)
    if start is Start.KNOWN and request.after_success is not None:
        end_source_again(RunRecords.open(context.stores, intake.run, intake.calls), context)
    return start
