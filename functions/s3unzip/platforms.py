"""The platforms of a forecast: rates, latencies and limits of AWS or of one machine.

A `Platform` is the only input of `simulation` about the environment. `bracket` returns the two
platforms (a good and a bad day) that give a forecast its range.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from s3unzip import rates
from s3unzip.errors import UsageError

if TYPE_CHECKING:
    from s3unzip.object_properties import ObjectProperties

_NORMAL = NormalDist()
_Z99 = _NORMAL.inv_cdf(0.99)


class Latency(Struct, frozen=True):
    """A lognormal time, given by its median and its 99th percentile, in seconds."""

    p50: float
    p99: float

    def __post_init__(self) -> None:
        if not 0 < self.p50 <= self.p99:
            raise UsageError(f"latency: 0 < p50 <= p99 does not hold for {self.p50}, {self.p99}")

    @property
    def sigma(self) -> float:
        """Standard deviation of the time's logarithm."""
        return math.log(self.p99 / self.p50) / _Z99

    @property
    def mean(self) -> float:
        """Mean, in seconds."""
        return self.p50 * math.exp(self.sigma**2 / 2)

    @property
    def variation(self) -> float:
        """Standard deviation as a share of the mean."""
        return math.sqrt(math.expm1(self.sigma**2))

    def quantile(self, share: float) -> float:
        """Return the time that `share` of all draws stay below; 0 < share < 1."""
        return self.p50 * math.exp(self.sigma * _NORMAL.inv_cdf(share))

    def times(self, factor: float) -> Latency:
        """Return this latency, `factor` times as long."""
        return Latency(self.p50 * factor, self.p99 * factor)


class Platform(Struct, frozen=True):
    """Rates in requests, bytes or starts a second; times in seconds; infinite: no limit."""

    name: str
    workers: int  # tasks at once
    bandwidth_in: float  # bytes a second, one worker
    bandwidth_out: float
    put: Latency
    get: Latency
    total_bandwidth: float = math.inf  # of all workers together, each way
    upload_rate: float = math.inf  # bytes a second, one request
    download_rate: float = math.inf
    copy_rate: float = rates.S3_REQUEST_COPY
    prefix_writes: float = math.inf
    prefix_reads: float = math.inf
    growth_seconds: float = math.inf  # seconds of throttling until a prefix doubles its rate
    efficiency: float = 1.0  # of the rate, while throttled
    dispatch_rate: float = math.inf
    burst: float = math.inf  # environments that start at once
    refill: float = math.inf  # environments a second after that
    cold_start: Latency | None = None
    event_seconds: float = 0.0
    start_seconds: float = 0.0  # from the plan's end to the first task's dispatch
    end_seconds: float = 0.0  # from the last task's end to the next step
    inline_at_once: int = 0  # tasks of an inline Map at once; 0: no state machine
    inline_rate: float = math.inf  # tasks that an inline Map starts a second
    inline_start_seconds: float = 0.0  # as `start_seconds` and `end_seconds`
    inline_end_seconds: float = 0.0
    plan_member_seconds: float = rates.PLAN_MEMBER_SECONDS
    member_seconds: float | None = None  # CPU of one small member; None: the tuning's
    inflate_rate: float = rates.INFLATE_RATE
    memory_gb: float = 0.0  # of a Lambda function; 0: only S3 costs money
    priced_requests: bool = False
    storage_class: str = "STANDARD"  # of the objects, for the price of writing them
    direct: bool = False  # the function that takes the event does the tasks: no state machine
    uncertainty: float = 1.25  # factor between a usual day and a bad one

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise UsageError(f"workers must be at least 1, not {self.workers}")

    def worker_bandwidth(self, at_once: int) -> tuple[float, float]:
        """Return bytes a second in and out of one of `at_once` busy workers."""
        share = self.total_bandwidth / max(1, at_once)
        return min(self.bandwidth_in, share), min(self.bandwidth_out, share)

    def storing(self, objects: ObjectProperties | None) -> Platform:
        """Return this platform for a run that writes such objects."""
        chosen = None if objects is None else objects.storage_class
        return self if chosen is None else replace(self, storage_class=chosen)


def aws(
    *,
    workers: int = rates.LAMBDA_CONCURRENCY,
    memory_mb: int = rates.LAMBDA_VCPU_MB,
) -> Platform:
    """Return Lambda workers under a Distributed Map, in one Region with both buckets."""
    latency = Latency(rates.S3_LATENCY_P50, rates.S3_LATENCY_P99)
    return Platform(
        name="aws",
        workers=workers,
        bandwidth_in=rates.LAMBDA_BANDWIDTH,
        bandwidth_out=rates.LAMBDA_BANDWIDTH,
        put=latency,
        get=latency,
        upload_rate=rates.S3_REQUEST_UPLOAD,
        download_rate=rates.S3_REQUEST_DOWNLOAD,
        prefix_writes=rates.S3_PREFIX_WRITES,
        prefix_reads=rates.S3_PREFIX_READS,
        growth_seconds=rates.S3_GROWTH_SECONDS,
        efficiency=rates.S3_THROTTLED_EFFICIENCY,
        dispatch_rate=rates.MAP_EXPRESS_STARTS,
        burst=rates.LAMBDA_BURST,
        refill=rates.LAMBDA_REFILL,
        cold_start=Latency(rates.COLD_START_P50, rates.COLD_START_P99),
        event_seconds=rates.EVENT_SECONDS,
        start_seconds=rates.EXECUTION_START_SECONDS + rates.MAP_START_SECONDS,
        end_seconds=rates.MAP_END_SECONDS,
        inline_at_once=rates.MAP_INLINE_AT_ONCE,
        inline_rate=rates.STATE_TRANSITIONS / 2,
        inline_start_seconds=rates.EXECUTION_START_SECONDS
        + rates.INLINE_START_STATES * rates.STATE_SECONDS,
        inline_end_seconds=rates.INLINE_END_STATES * rates.STATE_SECONDS,
        memory_gb=memory_mb / 1024,
        priced_requests=True,
        uncertainty=1.5,
    )


def one_function(memory_mb: int, *, member_seconds: float) -> Platform:
    """Return the function that gets an archive's event and does the complete run.

    Args:
        memory_mb: of the function; below `rates.LAMBDA_VCPU_MB` it has a share of a processor.
        member_seconds: CPU of one small member on a whole processor.
    """
    share = min(1.0, memory_mb / rates.LAMBDA_VCPU_MB)
    return replace(
        aws(workers=1, memory_mb=memory_mb),
        direct=True,
        inflate_rate=rates.INFLATE_RATE * share,
        member_seconds=member_seconds / share,
        plan_member_seconds=rates.PLAN_MEMBER_SECONDS / share,
    )


def local(
    *,
    workers: int,
    put: Latency,
    bandwidth: float = 1.0 * rates.GB,
    priced_requests: bool = False,
) -> Platform:
    """Return worker processes of one machine beside a store; `bandwidth` is the machine's.

    Args:
        workers: worker processes.
        put: latency of one small PUT to the destination.
        bandwidth: bytes a second, each way, all workers together.
        priced_requests: whether the store is S3 and its requests cost money.
    """
    return Platform(
        name="local",
        workers=workers,
        bandwidth_in=bandwidth,
        bandwidth_out=bandwidth,
        total_bandwidth=bandwidth,
        put=put,
        get=put,
        start_seconds=0.3,
        priced_requests=priced_requests,
    )


def bracket(platform: Platform) -> tuple[Platform, Platform]:
    """Return `platform` on a good day and on a bad one."""
    factor = platform.uncertainty
    return _scale(platform, 1 / factor), _scale(platform, factor)


def _scale(platform: Platform, factor: float) -> Platform:
    """Return `platform` with times `factor` as long, and rates that much lower.

    Quotas of Lambda and of the Map are exact and do not change. AWS documents the rate of a prefix
    as "at least": on a good day the prefix has this rate and S3 raises it early, on a bad day S3
    never raises it.
    """
    good = factor < 1
    growth = min(platform.growth_seconds, rates.S3_GROWTH_BEST) if good else math.inf
    if math.isinf(platform.growth_seconds):
        growth = math.inf
    cold = platform.cold_start
    member = platform.member_seconds
    return replace(
        platform,
        bandwidth_in=platform.bandwidth_in / factor,
        bandwidth_out=platform.bandwidth_out / factor,
        total_bandwidth=platform.total_bandwidth / factor,
        upload_rate=platform.upload_rate / factor,
        download_rate=platform.download_rate / factor,
        copy_rate=platform.copy_rate / factor,
        inflate_rate=platform.inflate_rate / factor,
        put=platform.put.times(factor),
        get=platform.get.times(factor),
        growth_seconds=growth,
        efficiency=1.0 if good else platform.efficiency / factor,
        cold_start=cold.times(factor) if cold else None,
        event_seconds=platform.event_seconds * factor,
        start_seconds=platform.start_seconds * factor,
        end_seconds=platform.end_seconds * factor,
        inline_start_seconds=platform.inline_start_seconds * factor,
        inline_end_seconds=platform.inline_end_seconds * factor,
        plan_member_seconds=platform.plan_member_seconds * factor,
        member_seconds=member * factor if member is not None else None,
    )
