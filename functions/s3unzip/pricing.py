"""The cost of a run on its platform: Lambda functions on AWS, or processes on one machine.

The cost of a finished run is computed from its counted requests, and that of an estimate from
expected requests. Every price is in `rates`, with its source. The cost does not cover storage, KMS,
transfer between Regions, free tiers, X-Ray or the idle stack (see docs/cost.md).
"""

import math
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from s3unzip import rates
from s3unzip.model import Report, Request, Requests

Job = Request | Report  # contains the source, the destination and the options of a run


class Platform(Struct, frozen=True):
    """The platform of a run, AWS or one machine: rates in bytes per second, times in seconds."""

    name: str
    workers: int  # number of concurrent tasks
    latency: float  # mean latency of one small request
    bandwidth: float  # bandwidth of one worker in each direction
    total_bandwidth: float = math.inf  # bandwidth of all workers together in each direction
    upload_rate: float = math.inf  # rate of a single request
    memory_gb: float = 0.0  # memory of a Lambda function; 0: one machine, where only S3 costs money
    priced_reads: bool = False  # the archive is in S3
    priced_writes: bool = False  # the destination is in S3
    direct: bool = False  # the function that receives the event extracts all: no state machine
    processor: float = 1.0  # share of a core that each worker has


def aws(
    *, workers: int = rates.LAMBDA_CONCURRENCY, memory_mb: int = rates.LAMBDA_VCPU_MB
) -> Platform:
    """Return the platform of Lambda workers of a state machine, in one Region with both buckets."""
    return Platform(
        name="aws",
        workers=workers,
        latency=rates.S3_LATENCY,
        bandwidth=rates.LAMBDA_BANDWIDTH,
        upload_rate=rates.S3_REQUEST_UPLOAD,
        memory_gb=memory_mb / 1024,
        priced_reads=True,
        priced_writes=True,
    )


def local(*, workers: int, priced_reads: bool = False, priced_writes: bool = False) -> Platform:
    """Return the platform of worker processes on one machine.

    Args:
        workers: number of processes.
        priced_reads: whether the archive is in S3, so that requests cost money and have S3's
            latency.
        priced_writes: whether the destination is in S3.
    """
    return Platform(
        name="local",
        workers=workers,
        latency=rates.S3_LATENCY if priced_reads or priced_writes else rates.LOCAL_LATENCY,
        bandwidth=rates.LOCAL_BANDWIDTH,
        total_bandwidth=rates.LOCAL_BANDWIDTH,
        upload_rate=rates.S3_REQUEST_UPLOAD if priced_writes else math.inf,
        priced_reads=priced_reads,
        priced_writes=priced_writes,
    )


class CostLine(Struct, frozen=True):
    """One line of the bill, where `dollars` is `quantity` times the price of one `unit`."""

    service: str
    item: str
    quantity: float
    unit: str
    dollars: float


class Cost(Struct, frozen=True):
    """The bill of one run, in dollars."""

    lines: tuple[CostLine, ...]
    total: float
    unavoidable: float  # cost of one PUT per member, which any tool must pay
    unavoidable_share: float  # share of the total cost; 0 if the total is 0


class Work(Struct, frozen=True):
    """The billed quantities of a run."""

    members: int  # number of members that were written
    requests: Requests
    seconds: float  # total duration of all functions
    tasks: int


def price_run(report: Report, platform: Platform | None) -> Cost | None:
    """Return the cost of a run from its counts; None if the platform is not billed by use."""
    if platform is None or not (
        platform.priced_reads or platform.priced_writes or platform.memory_gb
    ):
        return None
    requests = report.requests
    if not report.source.store.is_billed:
        requests = replace(requests, get=0)
    work = Work(
        members=report.extracted,
        requests=requests,
        seconds=report.task_seconds + report.plan_seconds,
        tasks=report.tasks,
    )
    return price(report, work, platform)


def price_archives(count: int, size: int) -> float:
    """Return the approximate cost, in dollars, of `count` archives with a total of `size` bytes."""
    members = size / rates.USUAL_MEMBER_BYTES
    return members * rates.PRICE_S3_WRITE + count * rates.USUAL_ARCHIVE_DOLLARS


def price(job: Job, work: Work, platform: Platform) -> Cost:
    """Return the bill for a run; the PUT of each member, in its storage class, is unavoidable."""
    lines = [
        *_price_s3(job, work, platform),
        *_price_services_besides_s3(job, work, platform),
    ]
    total = sum(line.dollars for line in lines)
    unavoidable = 0.0  # a PUT into a folder costs nothing
    if platform.priced_writes:
        unavoidable = work.members * rates.PRICES_S3_WRITE[_storage_class(job)]
    share = 0.0
    if total:
        share = unavoidable / total
    return Cost(tuple(lines), total=total, unavoidable=unavoidable, unavoidable_share=share)


def _storage_class(job: Job) -> str:
    objects = job.options.objects
    return (objects and objects.storage_class) or "STANDARD"


def _bill(service: str, item: str, quantity: float, *, unit: str, price: float) -> CostLine:
    return CostLine(
        service=service, item=item, quantity=quantity, unit=unit, dollars=quantity * price
    )


def _price_s3(job: Job, work: Work, platform: Platform) -> list[CostLine]:
    requests = work.requests
    bill = partial(_bill, "S3", unit="request")
    lines = []
    if platform.priced_writes:
        lines.append(bill("PUT, COPY, POST, LIST", requests.writes, price=rates.PRICE_S3_WRITE))
    if platform.priced_reads:
        lines.append(bill("GET, HEAD", requests.reads, price=rates.PRICE_S3_READ))
    storage_class = _storage_class(job)
    surcharge = rates.PRICES_S3_WRITE[storage_class] - rates.PRICE_S3_WRITE
    if platform.priced_writes and surcharge > 0:
        # Other PUTs write the records of the run, which are in the class STANDARD.
        count = min(requests.put, work.members) + requests.complete
        if storage_class not in rates.PARTS_AS_STANDARD:
            count += requests.create + requests.part + requests.copy
        lines.append(bill(f"more for {storage_class}", count, price=surcharge))
    return lines


def _price_services_besides_s3(job: Job, work: Work, platform: Platform) -> list[CostLine]:
    if not platform.memory_gb:
        return []
    invocations = 1  # in a direct run, one function does all the work
    transitions = 0
    if not platform.direct:
        invocations = work.tasks + 2  # the additional invocations are plan and report
        if work.tasks:
            transitions = rates.TRANSITIONS + rates.TASK_TRANSITIONS * work.tasks
    events = 1
    # A bucket that sends events for archives also sends one for each member that is put into it.
    if job.source.store.is_billed and job.source.bucket == job.destination.bucket:
        events += work.members
    logs = invocations * rates.LOG_BYTES + transitions * rates.TRANSITION_LOG_BYTES
    return [
        _bill(
            "Lambda",
            "duration",
            work.seconds * platform.memory_gb,
            unit="GB-s",
            price=rates.PRICE_LAMBDA_GB_SECOND,
        ),
        _bill("Lambda", "requests", invocations, unit="request", price=rates.PRICE_LAMBDA_REQUEST),
        _bill(
            "Step Functions",
            "Standard",
            transitions,
            unit="transition",
            price=rates.PRICE_STANDARD_TRANSITION,
        ),
        _bill("SQS", "requests", rates.SQS_REQUESTS, unit="request", price=rates.PRICE_SQS_REQUEST),
        _bill("EventBridge", "custom events", rates.EVENTS, unit="event", price=rates.PRICE_EVENT),
        _bill("EventBridge", "events of S3", events, unit="event", price=rates.PRICE_S3_EVENT),
        _bill("CloudWatch", "logs", logs, unit="byte", price=rates.PRICE_LOG_BYTE),
    ]
