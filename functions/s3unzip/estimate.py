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
from s3unzip.model import PlanSummary, Report, Requests, Run, Task, TaskKind
from s3unzip.settings import Tuning

TASK_GETS = 3  # the task's rows, and earlier outcomes and stop.json, which normally do not exist
TASK_CALLS = 4  # of these, the first range and the outcomes: one after the other
LARGE_CALLS = 5  # create, header, last part, complete, records: of a member that is one task
PLAN_CALLS = 9  # around a plan, one after the other
REPORT_CALLS = 3
LINK_CALLS = 16  # to link the segments of split members
MAX_PARTS = 10_000  # of a multipart upload: AmazonS3/latest/userguide/qfacts.html
MANY_DOLLARS = 10.0  # from which on cents are enough
FEW_DOLLARS = 0.001  # below which four decimals would be one digit


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


class Usage(Struct, frozen=True):
    """The billed usage of a run."""

    requests: Requests
    invocations: int = 0
    lambda_seconds: float = 0.0
    transitions: int = 0  # of Standard executions


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

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise UsageError(f"workers must be at least 1, not {self.workers}")


class Terms(Struct, frozen=True):
    """What an estimate needs to know of a run besides its tasks."""

    members: int  # that are written
    title: str = ""
    storage_class: str = "STANDARD"  # of the members' objects
    sends_events: bool = False  # the members are in the bucket of the archive, which sends events
    at_once: int = 0  # tasks; 0: as many as there are workers
    sizes: tuple[Bin, ...] = ()  # of the members, see `count_sizes`


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


class _MapWork(Struct, frozen=True):
    """The tasks of one Map: their number, the sum of their seconds, and the longest."""

    tasks: int
    seconds: float
    longest: float


class _Work(Struct, frozen=True):
    """What the formula needs of all tasks."""

    members: int
    at_once: int
    tasks: _MapWork
    scans: _MapWork  # of the segments of split members, in a round before the tasks
    requests: Requests


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


def one_function(memory_mb: int) -> Platform:
    """Return the function that gets an archive's event and does the complete run."""
    share = min(1.0, memory_mb / rates.LAMBDA_VCPU_MB)
    return replace(aws(workers=1, memory_mb=memory_mb), direct=True, processor=share)


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


def estimate(tasks: Sequence[Task], platform: Platform, tuning: Tuning, terms: Terms) -> Estimate:
    """Return the estimate of a run that does `tasks` on `platform`.

    Args:
        tuning: the settings with which they were cut.
    """
    work = _add_up(tasks, platform, tuning, terms)
    factors = (1 / platform.uncertainty, 1.0, platform.uncertainty)
    days = [_list_steps(work, platform, tuning, factor) for factor in factors]
    low, expected, high = (sum(step.seconds for step in steps) for steps in days)
    used = [_use(work, platform, *day) for day in zip(days, factors, strict=True)]
    costs = [price(one, platform, terms) for one in used]
    steps = days[1]
    before = [step.name for step in steps].index("work")
    first = sum(step.seconds for step in steps[:before]) + platform.latency
    kinds: Counter[str] = Counter()
    for task in tasks:
        kinds[task.kind.value] += task.members if task.part == 0 else 0
    longest, limit = work.tasks.longest, rates.LAMBDA_SECONDS
    warning = f"the longest task takes {longest:.0f} s; a function ends after {limit:.0f}"
    outlasts = platform.memory_gb > 0 and longest * platform.uncertainty > limit
    return Estimate(
        title=terms.title,
        platform=platform.name,
        members=terms.members,
        kinds={kind.value: kinds[kind.value] for kind in TaskKind if kinds[kind.value]},
        sizes=terms.sizes,
        bytes_in=sum(task.span[1] - task.span[0] for task in tasks),
        bytes_out=sum(task.size for task in tasks),
        tasks=len(tasks),
        at_once=work.at_once,
        duration=Range(low, expected, high),
        first_object=min(expected, first),
        steps=steps,
        bounds=_list_bounds(work, platform, 1.0),
        requests=work.requests,
        cost=costs[1],
        dollars=Range(*(cost.total for cost in costs)),
        warnings=(warning,) if outlasts else (),
    )


def estimate_run(
    summary: PlanSummary, tasks: Sequence[Task], platform: Platform, tuning: Tuning
) -> Estimate:
    """Return the estimate of a planned run."""
    terms = _terms_of(summary.run, summary.selected)
    terms = replace(terms, title=summary.run.id, at_once=summary.workers)
    return estimate(tasks, platform, tuning, terms)


def estimate_archive(
    tasks: Sequence[Task], platform: Platform, tuning: Tuning, terms: Terms
) -> Estimate:
    """Return the estimate of an archive that is not planned yet.

    On AWS a small archive is extracted by the function that gets its event.
    """
    made = estimate(tasks, platform, tuning, terms)
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
    kind, span = TaskKind.BATCH, (0, made.bytes_in)
    whole = Task("batch-0000000", kind, (0, 0), made.members, span, made.bytes_out, 0.0)
    return estimate([whole], one_function(rates.DIRECT_MEMORY_MB), tuning, terms)


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
    tasks = 0 if platform.direct else report.tasks
    usage = Usage(
        requests=requests,
        invocations=1 if platform.direct else tasks + 2,  # plan and report
        lambda_seconds=report.task_seconds + report.plan_seconds,
        transitions=_count_transitions(tasks),
    )
    return price(usage, platform, _terms_of(report, report.extracted))


def price(usage: Usage, platform: Platform, terms: Terms) -> Cost:
    """Return the bill for `usage`."""
    known = terms.storage_class
    lines = []
    if platform.priced_requests:
        calls = usage.requests
        lines += [
            _line("S3", "PUT, COPY, POST, LIST", calls.writes, "request", rates.PRICE_S3_WRITE),
            _line("S3", "GET, HEAD", calls.reads, "request", rates.PRICE_S3_READ),
        ]
        more = rates.PRICES_S3_WRITE[known] - rates.PRICE_S3_WRITE
        if more > 0:
            # The records of a run are STANDARD, so at most one PUT a member counts.
            dear = min(calls.put, terms.members) + calls.complete
            if known not in rates.PARTS_AS_STANDARD:
                dear += calls.create + calls.part + calls.copy
            lines.append(_line("S3", f"more for {known}", dear, "request", more))
    if platform.memory_gb:
        lines += _services(usage, platform.memory_gb, terms)
    total = sum(line.dollars for line in lines)
    unavoidable = terms.members * rates.PRICES_S3_WRITE[known] * platform.priced_requests
    return Cost(tuple(lines), total, unavoidable, unavoidable / total if total else 0.0)


def _services(usage: Usage, memory_gb: float, terms: Terms) -> list[CostLine]:
    used, states = usage.lambda_seconds * memory_gb, usage.transitions
    logs = usage.invocations * rates.LOG_BYTES
    standard = rates.PRICE_STANDARD_TRANSITION
    events = 1 + (terms.members if terms.sends_events else 0)
    return [
        _line("Lambda", "duration", used, "GB-s", rates.PRICE_LAMBDA_GB_SECOND),
        _line("Lambda", "requests", usage.invocations, "request", rates.PRICE_LAMBDA_REQUEST),
        _line("Step Functions", "Standard", states, "transition", standard),
        _line("SQS", "requests", rates.SQS_REQUESTS, "request", rates.PRICE_SQS_REQUEST),
        _line("EventBridge", "custom events", rates.EVENTS, "event", rates.PRICE_EVENT),
        _line("EventBridge", "events of S3", events, "event", rates.PRICE_S3_EVENT),
        _line("CloudWatch", "logs", logs, "byte", rates.PRICE_LOG_BYTE),
    ]


def _line(service: str, item: str, quantity: float, unit: str, each: float) -> CostLine:
    return CostLine(service, item, quantity, unit, quantity * each)


def _count_transitions(tasks: int) -> int:
    return rates.TRANSITIONS + rates.TASK_TRANSITIONS * tasks if tasks else 0


def _terms_of(run: Run | Report, members: int) -> Terms:
    """Return the terms of a run that writes so many members."""
    objects, source = run.options.objects, run.source
    return Terms(
        members=members,
        storage_class=(objects and objects.storage_class) or "STANDARD",
        sends_events=source.scheme == "s3" and source.bucket == run.destination.bucket,
    )


def count_sizes(sizes: Iterable[int]) -> tuple[Bin, ...]:
    """Return a histogram of `sizes` (bytes) with bins that double; empty bins are left out."""
    counts = Counter(map(int.bit_length, sizes))
    return tuple(
        Bin(1 << (bits - 1) if bits else 0, 1 << bits, count)
        for bits, count in sorted(counts.items())
    )


def show_dollars(dollars: float, beside: float | None = None) -> str:
    """Return dollars with as many digits as say something: ``$50.45``, ``$0.00003``.

    Args:
        beside: another amount in the same sentence; where the two differ and would look the
            same, it gets more digits.
    """
    decimals = 4 if dollars >= FEW_DOLLARS or dollars <= 0 else 1 - math.floor(math.log10(dollars))
    decimals = 2 if dollars >= MANY_DOLLARS else decimals
    if beside is not None and beside != dollars:
        while decimals < 12 and f"{dollars:.{decimals}f}" == f"{beside:.{decimals}f}":
            decimals += 1
    shown = f"${dollars:,.{decimals}f}"
    return shown.rstrip("0").removesuffix(".") if dollars < FEW_DOLLARS else shown


def _add_up(tasks: Sequence[Task], platform: Platform, tuning: Tuning, terms: Terms) -> _Work:
    at_once = max(1, min(terms.at_once or platform.workers, platform.workers, len(tasks)))
    bandwidth = min(platform.bandwidth, platform.total_bandwidth / at_once)
    segments = [task for task in tasks if task.kind is TaskKind.SCAN]
    each = [_task_seconds(task, platform, tuning, bandwidth) for task in tasks]
    scans = [_scan_seconds(task, platform, bandwidth) for task in segments]
    beyond = _beyond(terms.members, tuning)
    if platform.direct:  # all tasks are in memory
        length = sum(task.span[1] - task.span[0] for task in tasks)
        gets = 1 + (length + tuning.tail_bytes - beyond > tuning.tail_bytes)
        counts = Counter(get=gets, put=terms.members + rates.DIRECT_WRITES)
    else:
        split = sum(task.part == 0 for task in tasks if task.parts > 1)
        gets = PLAN_CALLS + math.ceil(beyond / tuning.directory_piece) + len(tasks) + 4 * split
        counts = Counter(get=gets, put=9 + 2 * split, list=4, create=1, abort=1)
        for task in tasks:
            counts.update(_task_requests(task, tuning))
        for task in segments:  # scanned, and linked
            pieces = math.ceil((task.span[1] - task.span[0]) / tuning.read_piece)
            counts.update(get=TASK_GETS + 2 + pieces, put=3)
    return _Work(terms.members, at_once, _round(each), _round(scans), Requests(**counts))


def _round(seconds: Sequence[float]) -> _MapWork:
    return _MapWork(len(seconds), sum(seconds), max(seconds, default=0.0))


def _beyond(members: int, tuning: Tuning) -> int:
    """Return the bytes of the directory that the first read of an archive does not have."""
    return max(0, members * rates.DIRECTORY_ENTRY - tuning.tail_bytes)


def _task_seconds(task: Task, platform: Platform, tuning: Tuning, bandwidth: float) -> float:
    """Return the seconds that one worker needs for `task` if nothing throttles it."""
    calls = 0 if platform.direct else TASK_CALLS
    inflating = task.size / (rates.INFLATE_RATE * platform.processor)
    moving = max(task.span[1] - task.span[0], task.size) / bandwidth
    if task.kind is TaskKind.BATCH:
        mean = task.size / task.members
        lanes = min(tuning.puts_in_flight, max(1, int(tuning.bytes_in_flight // max(1.0, mean))))
        putting = max(1.0, task.members / lanes) * (platform.latency + mean / platform.upload_rate)
        cpu = task.members * tuning.member_seconds / platform.processor + inflating
        return calls * platform.latency + max(moving, putting, cpu)
    calls += LARGE_CALLS if task.parts == 1 else 0
    if task.kind is TaskKind.COPY:
        rate = rates.S3_REQUEST_COPY * tuning.parts_in_flight
        return calls * platform.latency + task.size / rate
    last = min(tuning.part_bytes, task.size) / platform.upload_rate
    return calls * platform.latency + last + max(moving, inflating)


def _scan_seconds(task: Task, platform: Platform, bandwidth: float) -> float:
    reading = (task.span[1] - task.span[0]) / bandwidth
    cpu = rates.SCAN_INFLATES * task.size / rates.INFLATE_RATE + 2 * rates.BOUNDARY_SECONDS
    return (TASK_CALLS + 1) * platform.latency + max(reading, cpu)


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
    return requests | {"get": TASK_GETS + 2 + pieces, "part": parts}


def _list_steps(
    work: _Work, platform: Platform, tuning: Tuning, factor: float
) -> tuple[Share, ...]:
    """Return the parts of the duration on a day whose times are `factor` times as long."""
    call, cold = platform.latency, rates.COLD_START_P50 if platform.memory_gb else 0.0
    tasks, scans = work.tasks, work.scans
    plan = work.members * rates.PLAN_MEMBER_SECONDS / platform.processor + cold
    report = work.members * rates.REPORT_MEMBER_SECONDS
    start = end = 0.0
    if platform.direct:
        plan += rates.DIRECT_SECONDS + 3 * call
        report += 2 * call
    else:
        plan += rates.PLAN_SECONDS + PLAN_CALLS * call
        plan += work.members * rates.MEMBER_ROW / platform.bandwidth
        if _beyond(work.members, tuning):  # the function that gets the event starts an execution
            plan += cold and cold + rates.EXECUTION_START_SECONDS
        report = max(report, tasks.tasks / rates.OUTCOMES_AT_ONCE * call)
        report += rates.REPORT_SECONDS + REPORT_CALLS * call
        start, end = _around(tasks, platform)
    event = rates.EVENT_SECONDS if platform.memory_gb else 0.0
    steps = [
        Share("event", event * factor, "until the function is invoked"),
        Share("plan", plan * factor, f"members: {work.members:,}"),
    ]
    warm = rates.COLD_START_P99 if cold and tasks.tasks > 1 else 0.0  # the slowest of many
    if scans.tasks:
        scan = warm + sum(_around(scans, platform)) + LINK_CALLS * call + cold
        scan += max(scans.longest, scans.seconds / work.at_once, _dispatch(scans, platform))
        scan += scans.tasks * rates.LINK_SEGMENT_SECONDS
        steps.append(Share("scan and link", scan * factor, f"segments: {scans.tasks:,}"))
        warm = 0.0
    limit = _list_bounds(work, platform, factor)[0]
    return (
        *steps,
        Share("start", (start + warm) * factor, "of the tasks and their workers"),
        Share("work", limit.seconds, f"{limit.name}: {limit.detail}"),
        Share("report", (end + report) * factor),
    )


def _around(one: _MapWork, platform: Platform) -> tuple[float, float]:
    """Return the seconds to start and to end a round."""
    if not platform.memory_gb:
        return rates.LOCAL_START_SECONDS, 0.0
    if one.tasks <= rates.MAP_INLINE_AT_ONCE:
        states = rates.INLINE_START_STATES, rates.INLINE_END_STATES
        return states[0] * rates.STATE_SECONDS, states[1] * rates.STATE_SECONDS
    return rates.EXECUTION_START_SECONDS + rates.MAP_START_SECONDS, rates.MAP_END_SECONDS


def _dispatch(one: _MapWork, platform: Platform) -> float:
    """Return when the last task of a Distributed Map ends if none waits for a worker."""
    if not platform.memory_gb or one.tasks <= rates.MAP_INLINE_AT_ONCE:
        return 0.0
    return one.tasks / rates.MAP_STARTS + one.seconds / one.tasks


def _list_bounds(work: _Work, platform: Platform, factor: float) -> tuple[Share, ...]:
    """Return lower bounds of the tasks' time on such a day, the highest first."""
    tasks, writes = work.tasks, work.requests.writes
    limited = _write_seconds(writes, factor) if platform.memory_gb else 0.0
    spread = tasks.seconds / work.at_once * factor
    bounds = (
        Share("longest task", tasks.longest * factor, "bandwidth and CPU of one worker"),
        Share("workers", spread, f"{work.at_once:,} tasks at once"),
        Share("write rate", limited, f"{writes:,} writes on one prefix"),
        Share("dispatch", _dispatch(tasks, platform), f"{tasks.tasks:,} tasks"),
    )
    return tuple(sorted(bounds, key=lambda bound: -bound.seconds))


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


def _use(work: _Work, platform: Platform, steps: tuple[Share, ...], factor: float) -> Usage:
    """Return what is billed on a day of `factor` that takes `steps`."""
    own = {step.name: step.seconds for step in steps}
    if platform.direct:
        return Usage(work.requests, 1, sum(own.values()) - own["event"])
    tasks = work.tasks.tasks + work.scans.tasks
    seconds = (work.tasks.seconds + work.scans.seconds) * factor
    limit = _list_bounds(work, platform, factor)[0]
    if limit.name == "write rate":  # workers that S3 throttles are paid for while they wait
        seconds = max(seconds, work.at_once * limit.seconds)
    seconds += min(tasks, work.at_once) * rates.COLD_START_P50 * factor
    seconds += own["plan"] + own["report"]
    return Usage(work.requests, tasks + 2, seconds, _count_transitions(tasks))
