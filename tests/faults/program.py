"""The program whose processes are killed: what ``s3unzip run`` does.

``python -m tests.faults.program ORDER`` does one run, or goes on with one; its exit code is the
verdict's.
"""

import os
import sys

from msgspec import Struct

from s3unzip.errors import S3UnzipError
from s3unzip.local.machine import open_machine
from s3unzip.model import Location, Report, Request, decode
from s3unzip.stores.factory import StoreConfig
from s3unzip.zip import Policy
from tests.faults.archives import TUNING
from tests.faults.world import CREDENTIALS, REGION

WORKERS = 3
STOPPED = 6  # exit code: the run could not go on, as that of the command line


class Order(Struct, frozen=True):
    """What the program is to do."""

    endpoint: str
    home: str  # the folder that runs are kept below, ending in "/"
    request: Request
    resume: str | None = None  # go on with this run instead


def carry_out(order: Order) -> Report:
    """Do the run of an order; return its report."""
    config = StoreConfig(
        Location("file", "", order.home), endpoint_url=order.endpoint, region=REGION
    )
    request = order.request
    with open_machine(config, Policy(), TUNING, WORKERS) as machine:
        return machine.run(request) if order.resume is None else machine.resume(order.resume)


if __name__ == "__main__":
    os.environ.update(CREDENTIALS)
    try:
        report = carry_out(decode(sys.argv[1], Order))
    except S3UnzipError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(STOPPED)
    sys.exit(report.verdict.exit_code)
