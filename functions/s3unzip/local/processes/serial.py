"""A pool without workers: the jobs of one run in this process, one after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s3unzip.errors import S3UnzipError, ServiceFaultError
from s3unzip.local.pool import PoolResult
from s3unzip.local.waiting import Waiting
from s3unzip.local.worker import Done, Failed, do_job, nothing_follows

if TYPE_CHECKING:
    from collections.abc import Iterable

    from s3unzip.context import Context
    from s3unzip.local.worker import Follow, Job
    from s3unzip.model import Run


class SerialPool:
    """Does the jobs in this process, one after the other."""

    def __init__(self, run: Run, context: Context) -> None:
        self._run = run
        self._context = context

    @property
    def processes(self) -> int:
        """One: this process."""
        return 1

    def work(self, jobs: Iterable[Job], follow: Follow = nothing_follows) -> PoolResult:
        """Do `jobs` and what follows them."""
        result = PoolResult()
        waiting = Waiting(jobs)
        while waiting.ready:
            job = waiting.take()
            try:
                done = Done(job.id, do_job(self._run, job, self._context))
                result.done.append(done)
                waiting.put_first(follow(done))
            except ServiceFaultError as error:
                result.failed.append(Failed(job.id, error))
                waiting.put_first(follow(result.failed[-1]))
            except S3UnzipError as error:
                result.failed.append(Failed(job.id, error))
                break
        return result

    def close(self) -> None:
        """Do nothing, because there is no process."""
