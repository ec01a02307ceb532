"""The program whose processes are killed: what ``s3unzip run`` does, with its pauses shortened.

``python -m tests.faults.program ORDER`` does one run, or goes on with one; its exit code is the
verdict's.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from msgspec import Struct
from s3unzip.local.leftovers import drop_leftovers
from s3unzip.local.pool import WorkerPool
from s3unzip.local.processes.forkserver import ForkServer
from s3unzip.local.runner import redrive, run_archive

from s3unzip.context import Context
from s3unzip.errors import S3UnzipError
from s3unzip.local.locking import lock_run
from s3unzip.model import Location, PlanSummary, Report, Request, Run, decode
from s3unzip.runs.records import RunRecords
from s3unzip.stores.clock import LocalClock
from s3unzip.stores.factory import StoreConfig, open_stores
from tests.faults.archives import TUNING
from tests.faults.stores import CREDENTIALS
from tests.faults.versity import REGION

if TYPE_CHECKING:
    from s3unzip.context import Progress
    from s3unzip.stores.ports import Clock

WORKERS = 3
STOPPED = 6  # exit code: the run could not go on, as that of the command line
RETRY_DELAY = 0.02  # seconds; of a job whose worker died


class Order(Struct, frozen=True):
    """What the program is to do."""

    endpoint: str
    home: str  # the folder that runs are kept below, ending in "/"
    request: Request
    redrive: str | None = None  # go on with this run instead


class Maker(Struct, frozen=True):
    """Makes a context in this process or in a worker's."""

    config: StoreConfig

    def __call__(self, clock: Clock, progress: Progress | None = None) -> Context:
        """Return the context of this process."""
        return Context(open_stores(self.config), clock, tuning=TUNING, progress=progress)


def carry_out(order: Order) -> Report:
    """Do the run of an order; return its report."""
    config = StoreConfig(
        Location("file", "", order.home), endpoint_url=order.endpoint, region=REGION
    )
    maker = Maker(config)
    with ForkServer(["s3unzip.local.worker"]) as server:
        context = maker(LocalClock())
        locks = []

        def make_pool(run: Run) -> WorkerPool:
            return WorkerPool(run, WORKERS, maker, None, server, retry_delay=RETRY_DELAY)

        def planned(summary: PlanSummary) -> None:
            locks.append(lock_run(order.home, summary.run.id))
            drop_leftovers(order.home, summary.run, context)

        if order.redrive is None:
            return run_archive(order.request, context, make_pool, planned)
        summary = RunRecords.open(context.stores, order.redrive).read_summary()
        locks.append(lock_run(order.home, summary.run.id))
        return redrive(summary, context, make_pool)


if __name__ == "__main__":
    os.environ.update(CREDENTIALS)
    try:
        report = carry_out(decode(sys.argv[1], Order))
    except S3UnzipError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(STOPPED)
    sys.exit(report.verdict.exit_code)
