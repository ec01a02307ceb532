"""The cost of a run on its platform: Lambda functions on AWS, or processes on one machine.

The cost of a finished run is computed from the requests that it sent, and the cost of an estimate
from the expected requests. Every price is in `rates`, with its source. The cost does not include
storage, KMS, transfer between Regions, free tiers, X-Ray or the idle stack (see docs/cost.md).
"""

import math
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from s3unzip import rates
from s3unzip.model import Report, Request, Requests

Job = Request | Report  # contains the source, the destination and the options of a run


class Platform(Struct, frozen=True):
    """The platform of a run: AWS or one machine; rates in bytes per second, times in seconds."""

    name: str
    workers: int  # number of concurrent tasks
    latency: float  # mean latency of one small request
    bandwidth: float  # bandwidth of one worker in each direction
    total_bandwidth: float = math.inf  # bandwidth of all workers together in each direction
    upload_rate: float = math.inf  # rate of a single upload request
    memory_gb: float = 0.0  # memory of a Lambda function
    priced_reads: bool = False  # whether the archive is in S3
    priced_writes: bool = False  # whether the destination is in S3
    direct: bool = False  # whether the function that receives the event extracts the archive itself
    processor: float = 1.0  # share of a core that each worker has

    @property
    def is_aws(self) -> bool:
        """Whether the run is on AWS. On one machine, only S3 costs money."""
        return self.name == "aws"


def aws(
    *, workers: int = rates.LAMBDA_CONCURRENCY, memory_mb: int = rates.LAMBDA_VCPU_MB
) -> Platform:
    """Return the platform of a run on AWS, in the Region of the archive and the destination."""
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
        priced_reads: whether the archive is in S3, which charges for reads.
        priced_writes: whether the destination is in S3, which charges for writes.
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
    """One line of the bill; `dollars` is `quantity` times the price of one `unit`."""

    service: str
    item: str
    quantity: float
    unit: str
    dollars: float


class Cost(Struct, frozen=True):
    """The bill of one run, in dollars."""

    lines: tuple[CostLine, ...]
    total: float
    unavoidable: float  # cost of one PUT per member, which every tool needs
    unavoidable_share: float  # `unavoidable` divided by `total`; 0 if `total` is 0


def price_run(report: Report, platform: Platform | None) -> Cost | None:
    """Return the cost of a run from its counts; None if the run costs nothing or is not priced."""
    if platform is None or not (platform.priced_reads or platform.priced_writes):
        return None
    requests = report.requests
    # On AWS, a step ends with the PUT of its record, which the step itself cannot count.
    if platform.direct:  # one function extracted the archive, without the state machine
        requests = replace(requests, put=requests.put + rates.DIRECT_WRITES)
    elif platform.is_aws:  # the state machine called a function for each task
        requests = replace(requests, put=requests.put + report.tasks + rates.RUN_WRITES)
    return price(
        report,
        platform,
        members=report.extracted,
        requests=requests,
        seconds=report.task_seconds + report.plan_seconds,
        tasks=report.tasks,
    )


def price_archives(count: int, size: int) -> float:
    """Return the approximate cost in dollars of `count` archives with `size` bytes in total."""
    members = size / rates.USUAL_MEMBER_BYTES
    return members * rates.PRICE_S3_WRITE + count * rates.USUAL_ARCHIVE_DOLLARS


def price(
    job: Job, platform: Platform, *, members: int, requests: Requests, seconds: float, tasks: int
) -> Cost:
    """Return the bill for a run; its unavoidable part is the cost of one PUT per member.

    Args:
        job: the request or report with the source, the destination and the options of the run.
        platform: the platform of the run.
        members: number of members that were written.
        requests: all requests to stores.
        seconds: total duration of all functions.
        tasks: number of tasks.
    """
    lines = _price_s3(job, platform, members, requests)
    if platform.is_aws:
        lines += _price_services_besides_s3(
            job, platform, members=members, seconds=seconds, tasks=tasks
        )
    total = sum(line.dollars for line in lines)
    unavoidable = 0.0  # writing to a folder costs nothing
    if platform.priced_writes:
        unavoidable = members * rates.PRICES_S3_WRITE[_storage_class(job)]
    share = 0.0
    if total:
        share = unavoidable / total
    return Cost(tuple(lines), total=total, unavoidable=unavoidable, unavoidable_share=share)


def _storage_class(job: Job) -> str:
    objects = job.options.objects
    if objects is None or not objects.storage_class:
        return "STANDARD"
    return objects.storage_class


def _bill(service: str, item: str, quantity: float, *, unit: str, price: float) -> CostLine:
    return CostLine(
        service=service, item=item, quantity=quantity, unit=unit, dollars=quantity * price
    )


def _price_s3(job: Job, platform: Platform, members: int, requests: Requests) -> list[CostLine]:
    """Return the lines for requests to S3; those to other stores are not billed."""
    bill = partial(_bill, "S3", unit="request")
    lines = []
    if platform.priced_writes:
        lines.append(bill("PUT, COPY, POST, LIST", requests.writes, price=rates.PRICE_S3_WRITE))
    if platform.priced_reads:
        lines.append(bill("GET, HEAD", requests.reads, price=rates.PRICE_S3_READ))
    storage_class = _storage_class(job)
    surcharge = rates.PRICES_S3_WRITE[storage_class] - rates.PRICE_S3_WRITE
    if platform.priced_writes and surcharge > 0:
        # A member requires at most one PUT; the other PUTs write records, in the class STANDARD.
        # The surcharge of a multipart upload is for its completion and, in most classes, also for
        # its creation and its parts.
        count = min(requests.put, members) + requests.complete
        if storage_class not in rates.PARTS_AS_STANDARD:
            count += requests.create + requests.part + requests.copy
        lines.append(bill(f"surcharge for {storage_class}", count, price=surcharge))
    return lines


def _price_services_besides_s3(
    job: Job, platform: Platform, *, members: int, seconds: float, tasks: int
) -> list[CostLine]:
    """Return the lines for Lambda, Step Functions and the other services of a run on AWS."""
    invocations = 1  # in a direct run, one function does all the work
    transitions = 0
    if not platform.direct:
        invocations = tasks + 2  # one for each task, one for the plan, one for the report
        if tasks:
            transitions = rates.TRANSITIONS + rates.TASK_TRANSITIONS * tasks
    events = 1  # for the PUT of the archive
    # The bucket of the archive sends events for all objects, including members written to it.
    if job.source.store.is_billed and job.source.bucket == job.destination.bucket:
        events += members
    logs = invocations * rates.LOG_BYTES + transitions * rates.TRANSITION_LOG_BYTES
    return [
        _bill(
            "Lambda",
            "duration",
            seconds * platform.memory_gb,
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
