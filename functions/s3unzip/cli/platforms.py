"""Where a run is done, as forecasts know it: chosen by name."""

from __future__ import annotations

from s3unzip.errors import UsageError
from s3unzip.forecast import Platform, aws, local
from s3unzip.local.machine import LOCAL_PUT


def choose_platform(
    on: str,
    *,
    workers: int | None = None,
    memory_mb: int | None = None,
    priced_requests: bool = False,
) -> Platform:
    """Return the platform called `on`, aws or local, with its usual limits.

    Args:
        on: aws or local.
        workers: tasks at once; None: 1,000 on AWS, 2 on one machine.
        memory_mb: of a Lambda.
        priced_requests: whether one machine writes to Amazon S3, whose requests cost money.

    Raises:
        UsageError: `on` is neither, or there are no workers.
    """
    if on == "aws":
        usual = aws()
        return aws(
            workers=usual.workers if workers is None else workers,
            memory_mb=round(usual.memory_gb * 1024) if memory_mb is None else memory_mb,
        )
    if on == "local":
        count = 2 if workers is None else workers
        return local(workers=count, put=LOCAL_PUT, priced_requests=priced_requests)
    raise UsageError(f"--on takes aws or local, not {on!r}")
