"""Direct runs that are active: they have a claim, and no records before their end."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from s3unzip.aws_lambda.intake.claims import RUNNING, claim_name, list_direct_runs
from s3unzip.direct.bundle import unpack
from s3unzip.run_files import CLAIMS

if TYPE_CHECKING:
    from s3unzip.operate.runs import DeployedRuns

MAX_CLAIMS = 1_000  # of the latest that are looked through


def is_claimed(runs: DeployedRuns, run: str) -> bool:
    """Return whether a function may be at work on `run` as a direct run.

    Raises:
        AccessDeniedError: a right is missing.
    """
    listed = list_direct_runs(runs.stores.session.control, runs.work_location, MAX_CLAIMS)
    started = next((one.started for one in listed if (one.id, one.state) == (run, RUNNING)), None)
    if started is None or runs.records(run).exists():  # executions and refusals have records
        return False
    claim, _ = unpack(runs.stores.run_store(CLAIMS).read(claim_name(run, started)))
    return claim.until > time.time()
