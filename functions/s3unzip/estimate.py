"""Estimates of how long a run will take and what it will cost, made before the run begins.

The cost is computed from the expected requests (see `pricing`). The duration is the largest of
three lower bounds, plus an overhead. The bounds are the longest task, the sum of all tasks divided
by the number of workers, and the rate of writes that S3 accepts below one prefix. The overhead is
the time for the event, cold starts, plan, rounds and report. Every number is in `rates`, with its
source. The estimated durations have not yet been compared with measurements on AWS.

This module sends no requests, and reads neither files nor the clock.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from s3unzip import rates
from s3unzip.errors import UsageError
from s3unzip.model import Request, Requests, Task, TaskKind
from s3unzip.pricing import Cost, Job, Platform, aws, price
from s3unzip.printable import show_count, show_dollars
from s3unzip.settings import Tuning

# The number of requests that a step sends one after another, waiting for each response.
TASK_CALLS = 4  # for a task: its records, its first range and its outcomes
# In addition, for a large member: create, header, bytes after the data, last part, complete.
LARGE_CALLS = 5
PLAN_CALLS = 9
REPORT_CALLS = 3
DIRECT_CALLS = 5  # in the function that extracts a small archive itself
LINK_CALLS = 16  # to link the segments of split members
# The numbers of requests that read and write records.
TASK_GETS = 3  # rows of the task; earlier outcomes and stop.json, which normally do not exist
SPLIT_GETS = 4  # for a split member
SPLIT_PUTS = 2  # for a split member
SCAN_PUTS = 4  # the scanned segment, the linked segment, the outcomes of the scan and of the slice
PLAN_PUTS = 9
# Maximum number of parts: docs.aws.amazon.com/AmazonS3/latest/userguide/qfacts.html
MAX_PARTS = 10_000


class Bin(Struct, frozen=True):
    """The number of members with an uncompressed size in [`start`, `stop`) bytes."""

    start: int
    stop: int
    members: int


class Estimate(Struct, frozen=True):
    """The estimate for a run, in seconds, bytes and dollars."""

    title: str
    platform: str
    members: int
    kinds: dict[str, int]  # number of members by task kind
    sizes: tuple[Bin, ...]
    bytes_in: int
    bytes_out: int
    tasks: int
    workers: int  # number of concurrent tasks
    seconds: float  # approximate time from the event or the command to the report
    bound: str  # what determines the duration
    requests: Requests
    cost: Cost
    warnings: tuple[str, ...] = ()


class _Bound(NamedTuple):
    """A lower bound on how long all tasks together take."""

    seconds: float
    name: str
    throttled: bool = False  # whether S3's write rate is the bound, so that S3 throttles the tasks


def estimate(
    job: Job,
    tasks: Sequence[Task],
    platform: Platform,
    tuning: Tuning,
    *,
    workers: int = 0,
    sizes: Iterable[int] = (),
) -> Estimate:
    """Return the estimate for a run that performs `tasks` on `platform`.

    Args:
        job: the request or report with the source, the destination and the options of the run.
        tasks: all tasks of the plan.
        platform: the platform of the run.
        tuning: the settings with which the tasks were planned.
        workers: number of concurrent tasks; 0 for as many as the platform has workers.
        sizes: size of each member in bytes, for a histogram.
    """
    kinds: Counter[TaskKind] = Counter()
    for task in tasks:
        if task.part == 0:  # a split member is counted once
            kinds[task.kind] += task.members
    members = kinds.total()
    at_once = max(1, min(workers or platform.workers, platform.workers, len(tasks)))
    seconds = [_task_seconds(task, platform, tuning, at_once) for task in tasks]
    requests = _count_requests(tasks, members, platform, tuning)
    bottleneck = _find_bottleneck(seconds, at_once, requests, platform)
    overhead = _overhead_seconds(tasks, members, platform, tuning)
    billed = _billed_seconds(seconds, bottleneck, overhead, at_once=at_once, platform=platform)
    return Estimate(
        title=str(job.source),
        platform=platform.name,
        members=members,
        kinds={kind.value: kinds[kind] for kind in TaskKind if kinds[kind]},
        sizes=_count_sizes(sizes),
        bytes_in=sum(map(_bytes_read, tasks)),
        bytes_out=sum(task.size for task in tasks),
        tasks=len(tasks),
        workers=at_once,
        seconds=overhead + bottleneck.seconds,
        bound=bottleneck.name,
        requests=requests,
        cost=price(
            job, platform, members=members, requests=requests, seconds=billed, tasks=len(tasks)
        ),
        warnings=_warn_of_timeout(seconds, platform),
    )


def estimate_archive(
    request: Request,
    tasks: Sequence[Task],
    platform: Platform,
    tuning: Tuning,
    *,
    workers: int,
    sizes: Sequence[int],
) -> Estimate:
    """Return the estimate for an archive from the tasks that its plan would contain.

    On AWS, the function that receives the event extracts a small archive itself. The estimate is
    then repeated for that function, with one task that contains all members.

    Args:
        request: the request for the run.
        tasks: all tasks of the plan.
        platform: the platform of the run.
        tuning: the settings with which the tasks were planned.
        workers: number of concurrent tasks; 0 for as many as the platform has workers.
        sizes: size of each member in bytes, for a histogram.
    """
    expected = estimate(request, tasks, platform, tuning, workers=workers, sizes=sizes)
    if not platform.is_aws or not _is_direct(expected, tasks, tuning):
        return expected
    function = replace(
        aws(workers=1, memory_mb=rates.DIRECT_MEMORY_MB),
        direct=True,
        processor=min(1.0, rates.DIRECT_MEMORY_MB / rates.LAMBDA_VCPU_MB),
    )
    task = Task(
        "batch-0000000",
        TaskKind.BATCH,
        rows=(0, 0),  # an estimate does not read the rows
        members=expected.members,
        span=(0, expected.bytes_in),
        size=expected.bytes_out,
        seconds=0.0,  # `estimate` computes the time
    )
    return estimate(request, [task], function, tuning, sizes=sizes)


def check_budget(
    expected: Estimate, max_cost: float | None, limit_name: str = "--max-cost"
) -> None:
    """Refuse a run that would cost more than `max_cost` dollars; None means no limit."""
    if max_cost is None:
        return
    if not max_cost >= 0:  # negative or NaN
        raise UsageError(f"the cost limit must be 0 or more dollars, not {max_cost}")
    cost = expected.cost.total
    if cost > max_cost:  # enough digits are shown to tell the amounts apart
        raise UsageError(
            f"the estimate is {show_dollars(cost, max_cost)} for "
            f"{show_count(expected.members, 'member')}, above the limit of "
            f"{show_dollars(max_cost, cost)}; "
            f"{show_dollars(expected.cost.unavoidable)} of it is one PUT a member. "
            f"Raise {limit_name}, or extract fewer members with --include, --exclude or --limit"
        )


def _bytes_read(task: Task) -> int:
    start, stop = task.span
    return stop - start


def _is_direct(expected: Estimate, tasks: Sequence[Task], tuning: Tuning) -> bool:
    """Return whether the function that receives the event extracts the archive itself.

    The archive must be small, the first read must contain the whole directory, and one PUT must be
    enough for each member.
    """
    return (
        0 < expected.members <= tuning.max_direct_members
        and expected.members * rates.DIRECTORY_ENTRY <= tuning.tail_bytes
        and max(expected.bytes_in, expected.bytes_out) <= tuning.max_direct_bytes
        and all(
            task.kind is TaskKind.BATCH
            or max(task.size, _bytes_read(task)) <= rates.DIRECT_MEMBER_BYTES
            for task in tasks
        )
    )


def _count_sizes(sizes: Iterable[int]) -> tuple[Bin, ...]:
    """Return a histogram of `sizes` (bytes). The end of each bin is twice its start.

    Empty bins are left out.
    """
    counts = Counter(map(int.bit_length, sizes))
    # A size with `bits` bits is in [2**bits // 2, 2**bits). The size 0 has 0 bits: it is in [0, 1).
    return tuple(Bin(2**bits // 2, 2**bits, count) for bits, count in sorted(counts.items()))


def _warn_of_timeout(seconds: Sequence[float], platform: Platform) -> tuple[str, ...]:
    """Return a warning if the longest task may exceed the time limit of a function."""
    slow_seconds = max(seconds, default=0.0) * rates.SLOW_DAY
    limit = rates.LAMBDA_SECONDS
    if not platform.is_aws or slow_seconds <= limit:  # only functions have a time limit
        return ()
    return (
        f"the longest task may take {slow_seconds:.0f} s, but functions stop after {limit:.0f} s",
    )


def _find_bottleneck(
    seconds: Sequence[float], at_once: int, requests: Requests, platform: Platform
) -> _Bound:
    """Return the largest lower bound on the elapsed time of tasks with the durations `seconds`."""
    bounds = [
        _Bound(max(seconds, default=0.0), "the longest task"),
        _Bound(sum(seconds) / at_once, f"all tasks, shared by {show_count(at_once, 'worker')}"),
    ]
    if platform.priced_writes:  # the destination is in S3
        name = f"{requests.writes:,} writes below one prefix"
        bounds.append(_Bound(_write_seconds(requests.writes), name, throttled=True))
    return max(bounds)  # the bound with the largest `seconds`


def _write_seconds(writes: int) -> float:
    """Return the seconds that S3 needs to accept this number of writes below one prefix.

    The assumption is that writes come as fast as S3 accepts them, and that S3 doubles the accepted
    rate every `S3_GROWTH_SECONDS`.
    """
    rate = rates.S3_PREFIX_WRITES
    growth = rates.S3_GROWTH_SECONDS
    seconds = 0.0
    writes_left = float(writes)
    while writes_left > rate * growth:
        writes_left -= rate * growth
        seconds += growth
        rate *= 2
    return seconds + writes_left / rate


def _task_seconds(task: Task, platform: Platform, tuning: Tuning, at_once: int) -> float:
    """Return the seconds that one worker needs for `task` without throttling."""
    bandwidth = min(platform.bandwidth, platform.total_bandwidth / at_once)
    inflate_seconds = task.size / (rates.INFLATE_RATE * platform.processor)
    # Reading and writing overlap: only the larger amount counts.
    transfer_seconds = max(_bytes_read(task), task.size) / bandwidth
    # In a direct run, these requests are a part of the overhead (`DIRECT_CALLS`).
    calls = 0 if platform.direct else TASK_CALLS
    if task.kind is TaskKind.BATCH:  # reading, PUTs and inflating overlap
        put_seconds = _put_seconds(task, platform, tuning)
        cpu_seconds = task.members * tuning.member_seconds / platform.processor + inflate_seconds
        return calls * platform.latency + max(transfer_seconds, put_seconds, cpu_seconds)
    if task.parts == 1:  # the only task of its member: it also begins and completes the upload
        calls += LARGE_CALLS
    if task.kind is TaskKind.COPY:  # S3 copies several parts at once, each at `S3_REQUEST_COPY`
        return calls * platform.latency + task.size / rates.S3_REQUEST_COPY / tuning.parts_in_flight
    # The last part is sent after everything is inflated.
    last_part_seconds = min(tuning.part_bytes, task.size) / platform.upload_rate
    seconds = calls * platform.latency + last_part_seconds + max(transfer_seconds, inflate_seconds)
    if task.kind is TaskKind.SCAN:  # a segment is read twice: for the scan, then for the extraction
        seconds += _scan_seconds(task, platform, bandwidth)
    return seconds


def _put_seconds(task: Task, platform: Platform, tuning: Tuning) -> float:
    """Return the seconds that the PUTs of a batch take, with the concurrency in the settings."""
    mean_size = task.size / task.members
    max_puts = max(1, tuning.bytes_in_flight // max(1.0, mean_size))
    at_once = min(tuning.puts_at_once(task.members), max_puts)
    puts_per_connection = max(1.0, task.members / at_once)
    return (platform.latency + mean_size / platform.upload_rate) * puts_per_connection


def _scan_seconds(task: Task, platform: Platform, bandwidth: float) -> float:
    """Return the seconds that a scan needs for its segment and the window of the next segment."""
    read_seconds = _bytes_read(task) / bandwidth
    # A segment has two boundaries.
    cpu_seconds = rates.SCAN_INFLATES * task.size / rates.INFLATE_RATE + 2 * rates.BOUNDARY_SECONDS
    # The scan is a separate task, which also sends a request for the local header.
    return (TASK_CALLS + 1) * platform.latency + max(read_seconds, cpu_seconds)


def _overhead_seconds(
    tasks: Sequence[Task], members: int, platform: Platform, tuning: Tuning
) -> float:
    """Return the seconds outside tasks: for the event, cold starts, plan, rounds and report."""
    latency = platform.latency
    plan = members * rates.PLAN_MEMBER_SECONDS / platform.processor
    report = members * rates.REPORT_MEMBER_SECONDS
    if platform.direct:  # one function, without rounds and without records in a store
        return (
            rates.EVENT_SECONDS
            + rates.COLD_START_P50
            + rates.DIRECT_SECONDS
            + DIRECT_CALLS * latency
            + plan
            + report
        )
    plan += rates.PLAN_SECONDS + PLAN_CALLS * latency
    plan += members * rates.MEMBER_ROW / platform.bandwidth  # to write members.jsonl
    # Settling reads outcomes while it processes others: the slower of the two determines the time.
    report = max(report, len(tasks) / rates.OUTCOMES_AT_ONCE * latency)
    report += rates.REPORT_FIXED_SECONDS + REPORT_CALLS * latency
    if not platform.is_aws:
        return rates.LOCAL_START_SECONDS + plan + report
    cold_starts = rates.COLD_START_P50  # the cold start of the function that receives the event
    if len(tasks) > 1:
        cold_starts += rates.COLD_START_P99  # the cold start of the slowest worker
    if _directory_bytes_beyond_tail(members, tuning):  # another function plans the run
        cold_starts += rates.COLD_START_P50 + rates.EXECUTION_START_SECONDS
    scans = sum(task.kind is TaskKind.SCAN for task in tasks)
    rounds = _round_overhead_seconds(len(tasks))
    if scans:  # settling links the segments, and another round extracts them
        rounds += (
            _round_overhead_seconds(scans)
            + LINK_CALLS * latency
            + scans * rates.LINK_SEGMENT_SECONDS
        )
    return rates.EVENT_SECONDS + cold_starts + plan + rounds + report


def _round_overhead_seconds(tasks: int) -> float:
    """Return the seconds needed to start and end the Map of a round that has `tasks` tasks."""
    if tasks <= rates.MAP_INLINE_AT_ONCE:
        return rates.INLINE_MAP_SECONDS
    return rates.EXECUTION_START_SECONDS + rates.MAP_SECONDS + tasks / rates.MAP_STARTS


def _billed_seconds(
    seconds: Sequence[float],
    bottleneck: _Bound,
    overhead: float,
    *,
    at_once: int,
    platform: Platform,
) -> float:
    """Return the billed seconds of all functions together.

    Args:
        seconds: duration of each task.
        bottleneck: the largest lower bound on the elapsed time of all tasks. The estimate assumes
            that the elapsed time equals this bound.
        overhead: seconds outside tasks, used only for a direct run. The overhead includes
            `EVENT_SECONDS`, the wait for the event, which is not billed.
        at_once: number of concurrent tasks.
        platform: the platform of the run; in a direct run, one function does all the work.
    """
    if platform.direct:
        return overhead + bottleneck.seconds - rates.EVENT_SECONDS
    billed = (at_once + 2) * rates.COLD_START_P50  # cold starts of the workers, plan and settle
    if bottleneck.throttled:  # workers that S3 throttles are billed while they wait
        return billed + max(sum(seconds), at_once * bottleneck.seconds)
    return billed + sum(seconds)


def _directory_bytes_beyond_tail(members: int, tuning: Tuning) -> int:
    return max(0, members * rates.DIRECTORY_ENTRY - tuning.tail_bytes)


def _count_requests(
    tasks: Sequence[Task], members: int, platform: Platform, tuning: Tuning
) -> Requests:
    """Return the number of requests of a run by kind, including those for its records.

    Records require requests only on AWS. On one machine, the records are files.
    """
    if platform.direct:
        return _count_direct_requests(tasks, members, tuning)
    directory_bytes = _directory_bytes_beyond_tail(members, tuning)
    # One GET for the tail of the archive, and more for the directory before the tail.
    counts: Counter[str] = Counter(get=1 + math.ceil(directory_bytes / tuning.directory_piece))
    for task in tasks:
        counts.update(_task_requests(task, tuning))
        if platform.is_aws:
            # Requests for the records of the task. Settling reads the outcomes with one more GET.
            # Tasks other than scans write only their outcomes.
            counts.update(get=TASK_GETS + 1, put=SCAN_PUTS if task.kind is TaskKind.SCAN else 1)
    if platform.is_aws:
        splits = sum(task.part == 0 for task in tasks if task.parts > 1)  # number of split members
        # One call of the plan is the GET of the tail, which has already been counted.
        counts.update(get=PLAN_CALLS - 1 + SPLIT_GETS * splits, put=PLAN_PUTS + SPLIT_PUTS * splits)
        # Four LISTs look for records and uploads. To test the destination, the plan creates an
        # upload and aborts it.
        counts.update(list=4, create=1, abort=1)
    return Requests(**counts)


def _count_direct_requests(tasks: Sequence[Task], members: int, tuning: Tuning) -> Requests:
    gets = 1  # for the tail of the archive, which may contain all members
    archive_bytes = sum(map(_bytes_read, tasks)) + members * rates.DIRECTORY_ENTRY
    if archive_bytes > tuning.tail_bytes:
        gets = 2
    return Requests(get=gets, put=members + rates.DIRECT_WRITES)


def _task_requests(task: Task, tuning: Tuning) -> dict[str, int]:
    """Return how many requests a task sends for its members, keyed by field of `Requests`."""
    if task.kind is TaskKind.BATCH:
        return {"get": 1, "put": task.members}
    is_first = int(task.part == 0)
    requests = {"create": is_first, "complete": is_first}
    gets = 2  # for the local header, and for the data descriptor or gap after the data
    if task.kind is TaskKind.COPY:
        return requests | {
            "get": gets,
            "copy": max(1, math.ceil(task.size / tuning.copy_part_bytes)),
        }
    member_size = task.size * task.parts  # approximate if this task is a slice
    part_bytes = max(tuning.part_bytes, math.ceil(member_size / MAX_PARTS))
    gets += max(1, math.ceil(_bytes_read(task) / tuning.read_piece))
    if task.kind is TaskKind.SCAN:  # a slice will read the bytes of the scan again
        gets *= 2
    return requests | {"get": gets, "part": max(1, math.ceil(task.size / part_bytes))}
