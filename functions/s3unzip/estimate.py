"""What a run will take and cost, before it begins: a closed formula over the tasks of its plan.

The tasks take the largest of four bounds: the longest task, all work divided by the workers, the
writes that S3 takes below one prefix, and the start of all tasks. The fixed times come on top:
event, cold starts, plan, the start and end of each round, report. A good day and a bad day are the
same formula with other factors. `rates` has every number, with its source.

The cost does not include (see docs/cost.md) storage, KMS, transfer between Regions, free tiers, and
the cost of the idle stack. This module makes no call and reads no file and no clock.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from s3unzip import rates
from s3unzip.errors import BudgetError, UsageError
from s3unzip.figures import show_dollars
from s3unzip.model import Report, Request, Requests, Run, Task, TaskKind
from s3unzip.settings import Tuning

TASK_GETS = 3  # the task's rows, and earlier outcomes and stop.json, which normally do not exist
TASK_CALLS = 4  # of these, the first range and the outcomes: one after the other
LARGE_CALLS = 5  # create, header, last part, complete, records: of a member that is one task
PLAN_CALLS = 9  # around a plan, one after the other
REPORT_CALLS = 3
LINK_CALLS = 16  # to link the segments of split members
MAX_PARTS = 10_000  # of a multipart upload: AmazonS3/latest/userguide/qfacts.html
Job = Request | Run | Report  # source, destination and options of what is estimated or priced


class Range(Struct, frozen=True):
    """The values of a good, a usual and a bad day."""

    low: float
    expected: float
    high: float


class Bin(Struct, frozen=True):
    """The number of members with `start` to below `stop` uncompressed bytes."""

    start: int
    stop: int
    members: int


class Share(Struct, frozen=True):
    """A part of the duration, or a lower bound of the tasks' time; seconds."""

    name: str
    seconds: float
    detail: str = ""


class CostLine(Struct, frozen=True):
    """One line of the bill; `dollars` is `quantity` times the price of a `unit`."""

    service: str
    item: str
    quantity: float
    unit: str
    dollars: float


class Cost(Struct, frozen=True):
    """The bill of one run, in dollars."""

    lines: tuple[CostLine, ...]
    total: float
    unavoidable: float  # one PUT for each member, which any tool must pay
    unavoidable_share: float  # of the total; 0 if the total is 0


class Platform(Struct, frozen=True):
    """AWS or one machine: rates in bytes a second, times in seconds."""

    name: str
    workers: int  # tasks at once
    latency: float  # mean of one small request
    bandwidth: float  # of one worker, each way
    total_bandwidth: float = math.inf  # of all workers together, each way
    upload_rate: float = math.inf  # of one request
    memory_gb: float = 0.0  # of a Lambda function; 0: one machine, only S3 costs money
    priced_requests: bool = False
    direct: bool = False  # the function that takes the event does all: no state machine
    processor: float = 1.0  # share of a core that a worker has
    uncertainty: float = 1.25  # factor between a usual day and a bad one


class Estimate(Struct, frozen=True):
    """The estimate of a run; seconds, bytes and dollars."""

    title: str
    platform: str
    members: int
    kinds: dict[str, int]  # members by task kind
    sizes: tuple[Bin, ...]
    bytes_in: int
    bytes_out: int
    tasks: int
    at_once: int  # tasks
    duration: Range  # from the event, or the command, to the report
    first_object: float  # when the first member can be read
    steps: tuple[Share, ...]  # of the expected duration, in order
    bounds: tuple[Share, ...]  # on the tasks' time, the highest first
    requests: Requests
    cost: Cost
    dollars: Range
    warnings: tuple[str, ...] = ()


def aws(
    *, workers: int = rates.LAMBDA_CONCURRENCY, memory_mb: int = rates.LAMBDA_VCPU_MB
) -> Platform:
    """Return Lambda workers below a state machine, in one Region with both buckets."""
    return Platform(
        name="aws",
        workers=workers,
        latency=rates.S3_LATENCY,
        bandwidth=rates.LAMBDA_BANDWIDTH,
        upload_rate=rates.S3_REQUEST_UPLOAD,
        memory_gb=memory_mb / 1024,
        priced_requests=True,
        uncertainty=1.5,
    )


def local(*, workers: int, priced_requests: bool = False) -> Platform:
    """Return worker processes of one machine beside a store.

    Args:
        priced_requests: whether the store is S3 and its requests cost money.
    """
    return Platform(
        name="local",
        workers=workers,
        latency=rates.LOCAL_LATENCY,
        bandwidth=rates.LOCAL_BANDWIDTH,
        total_bandwidth=rates.LOCAL_BANDWIDTH,
        priced_requests=priced_requests,
    )


def estimate(
    job: Job,
    tasks: Sequence[Task],
    platform: Platform,
    tuning: Tuning,
    workers: int = 0,
    sizes: Iterable[int] = (),
) -> Estimate:
    """Return the estimate of a run that does `tasks` on `platform`.

    Args:
        job: the run, or what is asked for.
        tuning: the settings with which the tasks were cut.
        workers: tasks at once; 0: as many as the platform has workers.
        sizes: bytes of each member, for a histogram.
    """
    work = _Work(tasks, platform, tuning, workers)
    factors = (1 / platform.uncertainty, 1.0, platform.uncertainty)
    days = [work.steps(factor) for factor in factors]
    low, expected, high = (sum(step.seconds for step in steps) for steps in days)
    count = len(work.tasks) + len(work.scans)
    costs = [
        price(job, work.members, platform, work.requests, work.billed(*day), count)
        for day in zip(days, factors, strict=True)
    ]
    steps = days[1]
    before = [step.name for step in steps].index("work")
    first = sum(step.seconds for step in steps[:before]) + platform.latency
    longest, limit = max(work.tasks, default=0.0), rates.LAMBDA_SECONDS
    warning = f"the longest task takes {longest:.0f} s; a function ends after {limit:.0f}"
    outlasts = platform.memory_gb > 0 and longest * platform.uncertainty > limit
    return Estimate(
        title=str(job.source),
        platform=platform.name,
        members=work.members,
        kinds={kind.value: work.kinds[kind] for kind in TaskKind if work.kinds[kind]},
        sizes=_count_sizes(sizes),
        bytes_in=sum(task.span[1] - task.span[0] for task in tasks),
        bytes_out=sum(task.size for task in tasks),
        tasks=len(tasks),
        at_once=work.at_once,
        duration=Range(low, expected, high),
        first_object=min(expected, first),
        steps=steps,
        bounds=work.bounds(1.0),
        requests=work.requests,
        cost=costs[1],
        dollars=Range(*(cost.total for cost in costs)),
        warnings=(warning,) if outlasts else (),
    )


def estimate_archive(
    request: Request,
    tasks: Sequence[Task],
    platform: Platform,
    tuning: Tuning,
    workers: int,
    sizes: Sequence[int],
) -> Estimate:
    """Return the estimate of an archive that is not planned yet.

    On AWS a small archive is extracted by the function that gets its event.
    """
    made = estimate(request, tasks, platform, tuning, workers, sizes)
    if (
        platform.name != "aws"
        or not 0 < made.members <= tuning.max_direct_members
        or made.members * rates.DIRECTORY_ENTRY > tuning.tail_bytes
        or max(made.bytes_in, made.bytes_out) > tuning.max_direct_bytes
        or any(
            task.kind is not TaskKind.BATCH
            and max(task.size, task.span[1] - task.span[0]) > rates.DIRECT_MEMBER_BYTES
            for task in tasks
        )
    ):
        return made
    kind, span, memory = TaskKind.BATCH, (0, made.bytes_in), rates.DIRECT_MEMORY_MB
    whole = Task("batch-0000000", kind, (0, 0), made.members, span, made.bytes_out, 0.0)
    share = min(1.0, memory / rates.LAMBDA_VCPU_MB)
    function = replace(aws(workers=1, memory_mb=memory), direct=True, processor=share)
    return estimate(request, [whole], function, tuning, sizes=sizes)


def price_archives(count: int, size: int) -> float:
    """Return the dollars of extracting so many archives, of which only the bytes are known."""
    members = size / rates.USUAL_MEMBER_BYTES
    return members * rates.PRICE_S3_WRITE + count * rates.USUAL_ARCHIVE_DOLLARS


def check_budget(made: Estimate, max_cost: float | None) -> None:
    """Refuse a run whose expected cost is above `max_cost` dollars; None: no limit."""
    if max_cost is None:
        return
    if not max_cost >= 0:
        raise UsageError(f"the cost limit must be 0 or more dollars, not {max_cost}")
    expected = made.cost.total
    if expected > max_cost:
        raise BudgetError(
            f"the forecast is {show_dollars(expected, max_cost)} for {made.members:,} members, "
            f"above the limit of {show_dollars(max_cost, expected)}; "
            f"{show_dollars(made.cost.unavoidable)} of it is one PUT a member. "
            "Raise --max-cost, or extract fewer members with --include, --exclude or --limit"
        )


def price_run(report: Report, platform: Platform | None) -> Cost | None:
    """Return the cost of a run from what it counted, None if the platform has no prices."""
    if platform is None or not (platform.priced_requests or platform.memory_gb):
        return None
    requests = report.requests
    if report.source.scheme != "s3":  # what is read of a file or a web server is not billed
        requests = replace(requests, get=0)
    seconds = report.task_seconds + report.plan_seconds
    return price(report, report.extracted, platform, requests, seconds, report.tasks)


def price(
    job: Job, members: int, platform: Platform, calls: Requests, seconds: float, tasks: int
) -> Cost:
    """Return the bill of a run that writes `members`; `seconds` are those of its functions."""
    objects, source = job.options.objects, job.source
    known = (objects and objects.storage_class) or "STANDARD"
    lines: list[tuple[str, str, float, str, float]] = []
    if platform.priced_requests:
        lines += [
            ("S3", "PUT, COPY, POST, LIST", calls.writes, "request", rates.PRICE_S3_WRITE),
            ("S3", "GET, HEAD", calls.reads, "request", rates.PRICE_S3_READ),
        ]
        more = rates.PRICES_S3_WRITE[known] - rates.PRICE_S3_WRITE
        if more > 0:
            # The records of a run are STANDARD, so at most one PUT a member counts.
            dear = min(calls.put, members) + calls.complete
            if known not in rates.PARTS_AS_STANDARD:
                dear += calls.create + calls.part + calls.copy
            lines.append(("S3", f"more for {known}", dear, "request", more))
    if platform.memory_gb:
        sends = source.scheme == "s3" and source.bucket == job.destination.bucket
        used, events = seconds * platform.memory_gb, 1 + members * sends
        invocations, states = tasks + 2, 0  # plan and report
        if platform.direct:
            invocations = 1
        elif tasks:
            states = rates.TRANSITIONS + rates.TASK_TRANSITIONS * tasks
        logs = invocations * rates.LOG_BYTES
        lines += [
            ("Lambda", "duration", used, "GB-s", rates.PRICE_LAMBDA_GB_SECOND),
            ("Lambda", "requests", invocations, "request", rates.PRICE_LAMBDA_REQUEST),
            ("Step Functions", "Standard", states, "transition", rates.PRICE_STANDARD_TRANSITION),
            ("SQS", "requests", rates.SQS_REQUESTS, "request", rates.PRICE_SQS_REQUEST),
            ("EventBridge", "custom events", rates.EVENTS, "event", rates.PRICE_EVENT),
            ("EventBridge", "events of S3", events, "event", rates.PRICE_S3_EVENT),
            ("CloudWatch", "logs", logs, "byte", rates.PRICE_LOG_BYTE),
        ]
    bill = tuple(
        CostLine(service, item, quantity, unit, quantity * each)
        for service, item, quantity, unit, each in lines
    )
    total = sum(line.dollars for line in bill)
    unavoidable = members * rates.PRICES_S3_WRITE[known] * platform.priced_requests
    return Cost(bill, total, unavoidable, unavoidable / total if total else 0.0)


def _count_sizes(sizes: Iterable[int]) -> tuple[Bin, ...]:
    """Return a histogram of `sizes` (bytes) with bins that double; empty bins are left out."""
    counts = sorted(Counter(map(int.bit_length, sizes)).items())
    return tuple(Bin(1 << (bits - 1) if bits else 0, 1 << bits, count) for bits, count in counts)


class _Work:
    """What the formula needs of all tasks."""

    def __init__(
        self, tasks: Sequence[Task], platform: Platform, tuning: Tuning, workers: int
    ) -> None:
        self._platform, self._tuning = platform, tuning
        self.kinds: Counter[TaskKind] = Counter()  # members
        for task in tasks:
            self.kinds[task.kind] += task.members if task.part == 0 else 0
        self.members = self.kinds.total()
        self.at_once = max(1, min(workers or platform.workers, platform.workers, len(tasks)))
        self._bandwidth = min(platform.bandwidth, platform.total_bandwidth / self.at_once)
        self.tasks = [self._task_seconds(task) for task in tasks]
        # Of the segments of split members, in a round before the tasks.
        self.scans = [self._scan_seconds(one) for one in tasks if one.kind is TaskKind.SCAN]
        # Bytes of the directory that the first read of an archive does not have.
        self._beyond = max(0, self.members * rates.DIRECTORY_ENTRY - tuning.tail_bytes)
        self.requests = self._count_requests(tasks)

    def _count_requests(self, tasks: Sequence[Task]) -> Requests:
        tuning = self._tuning
        if self._platform.direct:  # all tasks are in memory
            length = sum(task.span[1] - task.span[0] for task in tasks)
            return Requests(get=1 + (length > self._beyond), put=self.members + rates.DIRECT_WRITES)
        split = sum(task.part == 0 for task in tasks if task.parts > 1)
        gets = PLAN_CALLS + math.ceil(self._beyond / tuning.directory_piece) + len(tasks)
        counts = Counter(get=gets + 4 * split, put=9 + 2 * split, list=4, create=1, abort=1)
        for task in tasks:
            counts.update(_task_requests(task, tuning))
        return Requests(**counts)

    def _task_seconds(self, task: Task) -> float:
        """Return the seconds that one worker needs for `task` if nothing throttles it."""
        platform, tuning = self._platform, self._tuning
        calls = 0 if platform.direct else TASK_CALLS
        inflating = task.size / (rates.INFLATE_RATE * platform.processor)
        moving = max(task.span[1] - task.span[0], task.size) / self._bandwidth
        if task.kind is TaskKind.BATCH:
            mean = task.size / task.members
            lanes = min(tuning.puts_in_flight, max(1, tuning.bytes_in_flight // max(1.0, mean)))
            putting = platform.latency + mean / platform.upload_rate
            putting *= max(1.0, task.members / lanes)
            cpu = task.members * tuning.member_seconds / platform.processor + inflating
            return calls * platform.latency + max(moving, putting, cpu)
        calls += LARGE_CALLS if task.parts == 1 else 0
        if task.kind is TaskKind.COPY:
            rate = rates.S3_REQUEST_COPY * tuning.parts_in_flight
            return calls * platform.latency + task.size / rate
        last = min(tuning.part_bytes, task.size) / platform.upload_rate
        return calls * platform.latency + last + max(moving, inflating)

    def _scan_seconds(self, task: Task) -> float:
        reading = (task.span[1] - task.span[0]) / self._bandwidth
        cpu = rates.SCAN_INFLATES * task.size / rates.INFLATE_RATE + 2 * rates.BOUNDARY_SECONDS
        return (TASK_CALLS + 1) * self._platform.latency + max(reading, cpu)

    def steps(self, factor: float) -> tuple[Share, ...]:
        """Return the parts of the duration on a day whose times are `factor` times as long."""
        platform, scans, call = self._platform, self.scans, self._platform.latency
        cold, event, warm = 0.0, 0.0, 0.0
        if platform.memory_gb:
            cold, event = rates.COLD_START_P50, rates.EVENT_SECONDS
            warm = rates.COLD_START_P99 if len(self.tasks) > 1 else 0.0  # the slowest of many
        plan = self.members * rates.PLAN_MEMBER_SECONDS / platform.processor + cold
        report = self.members * rates.REPORT_MEMBER_SECONDS
        start = end = 0.0
        if platform.direct:
            plan += rates.DIRECT_SECONDS + 3 * call
            report += 2 * call
        else:
            plan += rates.PLAN_SECONDS + PLAN_CALLS * call
            plan += self.members * rates.MEMBER_ROW / platform.bandwidth
            if self._beyond and cold:  # the function that gets the event starts an execution
                plan += cold + rates.EXECUTION_START_SECONDS
            report = max(report, len(self.tasks) / rates.OUTCOMES_AT_ONCE * call)
            report += rates.REPORT_SECONDS + REPORT_CALLS * call
            start, end = self._around(self.tasks)
        steps = [
            Share("event", event * factor, "until the function is invoked"),
            Share("plan", plan * factor, f"members: {self.members:,}"),
        ]
        if scans:
            scan = warm + sum(self._around(scans)) + LINK_CALLS * call + cold
            scan += max(*scans, sum(scans) / self.at_once, self._dispatch(scans))
            scan += len(scans) * rates.LINK_SEGMENT_SECONDS
            steps.append(Share("scan and link", scan * factor, f"segments: {len(scans):,}"))
            warm = 0.0
        limit = self.bounds(factor)[0]
        return (
            *steps,
            Share("start", (start + warm) * factor, "of the tasks and their workers"),
            Share("work", limit.seconds, f"{limit.name}: {limit.detail}"),
            Share("report", (end + report) * factor),
        )

    def _around(self, seconds: Sequence[float]) -> tuple[float, float]:
        """Return the seconds to start and to end a round."""
        if not self._platform.memory_gb:
            return rates.LOCAL_START_SECONDS, 0.0
        if len(seconds) <= rates.MAP_INLINE_AT_ONCE:
            states = rates.STATE_SECONDS
            return rates.INLINE_START_STATES * states, rates.INLINE_END_STATES * states
        return rates.EXECUTION_START_SECONDS + rates.MAP_START_SECONDS, rates.MAP_END_SECONDS

    def _dispatch(self, seconds: Sequence[float]) -> float:
        """Return when the last task of a Distributed Map ends if none waits for a worker."""
        count = len(seconds)
        if not self._platform.memory_gb or count <= rates.MAP_INLINE_AT_ONCE:
            return 0.0
        return count / rates.MAP_STARTS + sum(seconds) / count

    def bounds(self, factor: float) -> tuple[Share, ...]:
        """Return lower bounds of the tasks' time on such a day, the highest first."""
        seconds, writes = self.tasks, self.requests.writes
        limited = _write_seconds(writes, factor) if self._platform.memory_gb else 0.0
        longest, spread = max(seconds, default=0.0), sum(seconds) / self.at_once
        bounds = (
            Share("longest task", longest * factor, "bandwidth and CPU of one worker"),
            Share("workers", spread * factor, f"{self.at_once:,} tasks at once"),
            Share("write rate", limited, f"{writes:,} writes on one prefix"),
            Share("dispatch", self._dispatch(seconds), f"{len(seconds):,} tasks"),
        )
        return tuple(sorted(bounds, key=lambda bound: -bound.seconds))

    def billed(self, steps: tuple[Share, ...], factor: float) -> float:
        """Return the seconds of functions on a day of `factor` that takes `steps`."""
        own = {step.name: step.seconds for step in steps}
        if self._platform.direct:
            return sum(own.values()) - own["event"]
        seconds = (sum(self.tasks) + sum(self.scans)) * factor
        limit = self.bounds(factor)[0]
        if limit.name == "write rate":  # workers that S3 throttles are paid for while they wait
            seconds = max(seconds, self.at_once * limit.seconds)
        begun = min(len(self.tasks) + len(self.scans), self.at_once)
        return seconds + begun * rates.COLD_START_P50 * factor + own["plan"] + own["report"]


def _task_requests(task: Task, tuning: Tuning) -> dict[str, int]:
    """Return the requests of `extraction` for a task, by the fields of `Requests`."""
    if task.kind is TaskKind.BATCH:
        return {"get": TASK_GETS + 1, "put": task.members + 1}
    whole, first = int(task.parts == 1), int(task.part == 0)
    requests = {"put": 1 + whole, "create": first, "complete": first}
    if task.kind is TaskKind.COPY:
        copies = max(1, math.ceil(task.size / tuning.copy_part_bytes))
        return requests | {"get": TASK_GETS + 2, "copy": copies}
    part = max(tuning.part_bytes, math.ceil(task.size * task.parts / MAX_PARTS))
    pieces = max(1, math.ceil((task.span[1] - task.span[0]) / tuning.read_piece))
    parts = max(1, math.ceil(task.size / part))
    gets = TASK_GETS + 2 + pieces
    if task.kind is TaskKind.SCAN:  # it is read and linked before its slice is
        return requests | {"get": 2 * gets, "put": 4, "part": parts}
    return requests | {"get": gets, "part": parts}


def _write_seconds(writes: int, factor: float) -> float:
    """Return the seconds of `writes` on one prefix, whose rate S3 raises while it throttles.

    AWS documents the rate as "at least": on a good day S3 raises it early, on a bad one never.
    """
    if factor > 1:
        return writes / rates.S3_PREFIX_WRITES * factor
    growth = rates.S3_GROWTH_BEST if factor < 1 else rates.S3_GROWTH_SECONDS
    rate, seconds, left = rates.S3_PREFIX_WRITES, 0.0, float(writes)
    while left > rate * growth:
        left -= rate * growth
        seconds += growth
        rate *= 2
    return seconds + left / rate
