"""Where a run works: Lambda functions on AWS, or processes of one machine."""

import math

from msgspec import Struct

from s3unzip import rates


class Platform(Struct, frozen=True):
    """AWS or one machine: rates in bytes a second, times in seconds."""

    name: str
    workers: int  # tasks at once
    latency: float  # mean of one small request
    bandwidth: float  # of one worker, each way
    total_bandwidth: float = math.inf  # of all workers together, each way
    upload_rate: float = math.inf  # of one request
    memory_gb: float = 0.0  # of a Lambda function; 0: one machine, where only S3 costs money
    priced_reads: bool = False  # the archive is in S3
    priced_writes: bool = False  # the destination is in S3
    direct: bool = False  # the function that takes the event does all: no state machine
    processor: float = 1.0  # share of a core that a worker has

    @property
    def costs_money(self) -> bool:
        """Whether anything of a run here is paid for by use."""
        return self.priced_reads or self.priced_writes or self.memory_gb > 0


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
        priced_reads=True,
        priced_writes=True,
    )


def local(*, workers: int, priced_reads: bool = False, priced_writes: bool = False) -> Platform:
    """Return worker processes of one machine.

    Args:
        workers: processes.
        priced_reads: whether the archive is in S3: its requests cost money and take S3's time.
        priced_writes: whether the destination is in S3.
    """
    is_remote = priced_reads or priced_writes
    return Platform(
        name="local",
        workers=workers,
        latency=rates.S3_LATENCY if is_remote else rates.LOCAL_LATENCY,
        bandwidth=rates.LOCAL_BANDWIDTH,
        total_bandwidth=rates.LOCAL_BANDWIDTH,
        upload_rate=rates.S3_REQUEST_UPLOAD if priced_writes else math.inf,
        priced_reads=priced_reads,
        priced_writes=priced_writes,
    )
