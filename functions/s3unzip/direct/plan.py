"""Whether an archive is extracted by the function that takes its event, and how it is planned.

It is where its directory is in the first bytes that were read, its members are
small, and it is within the bounds of the settings, that of its estimated seconds included.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from s3unzip import rates
from s3unzip.direct.held_source import DirectContext, DirectStores
from s3unzip.direct.memory_store import MemoryRunStore
from s3unzip.errors import RejectedError
from s3unzip.estimate import Platform, estimate_run
from s3unzip.model import PlanSummary, Report, Requests, TaskKind
from s3unzip.planning.plan_writer import make_plan
from s3unzip.planning.reading import disks_of
from s3unzip.runs.records import RunRecords
from s3unzip.zip import drive, locate_directory

if TYPE_CHECKING:
    from s3unzip.context import Context
    from s3unzip.model import Request, Task
    from s3unzip.settings import Tuning
    from s3unzip.stores.ports import Tail
    from s3unzip.zip import ByteRange


class _NotHeldError(Exception):
    """The directory begins before the bytes that are held."""


class DirectPlan(Struct, frozen=True):
    """A planned direct run; all of its records are in memory."""

    summary: PlanSummary
    tasks: tuple[Task, ...]
    records: MemoryRunStore
    context: DirectContext


def plan_direct(
    request: Request, tail: Tail, context: Context, function: Platform
) -> DirectPlan | None:
    """Return the plan of a direct run; None where the archive is to be planned as others are.

    So is one that is refused. Nothing is written, and only a prefix before the first member
    is read.

    Args:
        request: what, where to and how.
        tail: the archive's last bytes, which hold its directory, and its version.
        context: of the invocation; its platform is that of the state machine's workers.
        function: the invoked function (`estimate.one_function`).

    Raises:
        UsageError: the request is wrong.
        StorageError, ServiceFaultError: the archive cannot be read.
    """
    tuning = context.tuning
    if not tuning.max_direct_members:
        return None
    plan = _plan(request, tail, context, _one_batch(tuning), function)
    if plan is None or not _is_within(plan, tuning):
        return None
    made = estimate_run(plan.summary, plan.tasks, function, tuning)
    if made.duration.expected > tuning.max_direct_seconds:
        return None
    looks = int(request.recheck_after is not None)  # for the report of the archive's own run
    requests = plan.summary.requests + Requests(get=looks, put=rates.DIRECT_WRITES)
    summary = replace(plan.summary, requests=requests)
    RunRecords(plan.records).write_summary(lambda _: summary)
    return replace(plan, summary=summary)


def holds_directory(tail: Tail, context: Context) -> bool:
    """Say whether the whole directory of an archive is in its last bytes."""

    def refuse(_: ByteRange) -> bytes:
        raise _NotHeldError

    try:
        reads = locate_directory(tail.data, tail.pin.size, context.policy, disks_of(tail.pin))
        location = drive(reads, refuse)
    except _NotHeldError:
        return False
    except RejectedError:  # the plan says so again, and how
        return True
    return not location.missing.length


def _one_batch(tuning: Tuning) -> Tuning:
    """Return the settings with which all members are PUTs of one worker."""
    return replace(
        tuning,
        small_member=max(tuning.small_member, tuning.max_direct_member_bytes),
        batch_min_seconds=tuning.batch_seconds,
        max_workers=1,
    )


def _plan(
    request: Request, tail: Tail, context: Context, tuning: Tuning, platform: Platform
) -> DirectPlan | None:
    """Return the plan for one platform; None where the archive is refused."""
    records = MemoryRunStore()
    direct = DirectContext(
        stores=DirectStores(context.stores, tail, records),
        clock=context.clock,
        policy=context.policy,
        tuning=tuning,
        progress=context.progress,
        platform=platform,
        environment=context.environment,
    )
    summary = make_plan(request, direct, probe=False)
    if isinstance(summary, Report):
        return None
    tasks = tuple(RunRecords(records).tasks())
    return DirectPlan(summary, tasks, records, direct)


def _is_within(plan: DirectPlan, tuning: Tuning) -> bool:
    summary = plan.summary
    return (
        summary.selected <= tuning.max_direct_members
        and max(summary.bytes_in, summary.bytes_out) <= tuning.max_direct_bytes
        and all(task.kind is TaskKind.BATCH for task in plan.tasks)
    )
