"""Check of Lambda's concurrency: the account's quota against the environment's settings."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from s3unzip.operate.doctor.asking import ask
from s3unzip.operate.doctor.deployment import FUNCTION
from s3unzip.operate.doctor.results import Answer

if TYPE_CHECKING:
    from s3unzip.operate.doctor.deployment import Deployment

SHARE = (
    0.9  # of the available concurrency; a larger share leaves too little for the other functions
)
QUOTA = "ask for more: Service Quotas, AWS Lambda, Concurrent executions (L-B99A9384)"


class Limits(NamedTuple):
    """Invocations at once."""

    account: int
    unreserved: int  # shared by all functions of the account without a reservation
    reserved: int | None  # for the extract function alone


def check_concurrency(deployment: Deployment) -> Answer:
    """Can as many workers run at once as all runs share: ``runs.concurrency - runs.reserve``?

    An account has 1,000, a new account 10. Lambda keeps at least 100 unreserved:
    https://docs.aws.amazon.com/lambda/latest/dg/lambda-concurrency.html
    """
    limits = _read_limits(deployment)
    wanted = deployment.scale.workers
    available = limits.unreserved if limits.reserved is None else limits.reserved
    whose = "unreserved" if limits.reserved is None else "reserved for extract"
    said = (
        f"runs may have {wanted:,} workers; {available:,} are {whose}, "
        f"{limits.unreserved:,} of the account's {limits.account:,} are unreserved"
    )
    if wanted > available:
        if limits.reserved is not None:
            advice = "raise functions.extract.reserved_concurrency or deploy again"
        else:
            advice = f"lower runs.concurrency to {limits.unreserved:,}, or {QUOTA}"
        return Answer.failure(f"{said}: Lambda will refuse workers", advice)
    if limits.reserved is None and wanted > SHARE * available:
        return Answer.warning(
            f"{said}: runs leave too few to plan, report and other functions",
            f"raise runs.reserve until runs have less than {SHARE:.0%} of it, or {QUOTA}",
        )
    return Answer.ok(said)


def _read_limits(deployment: Deployment) -> Limits:
    client = deployment.client("lambda")
    found = ask("lambda:GetAccountSettings", client.get_account_settings)["AccountLimit"]
    reserved = None
    for one in deployment.resources:
        if one.kind == FUNCTION and one.logical.startswith("FunctionsExtract"):
            call = partial(client.get_function_concurrency, FunctionName=one.physical)
            answer = ask("lambda:GetFunctionConcurrency", call)
            reserved = answer.get("ReservedConcurrentExecutions")
    return Limits(found["ConcurrentExecutions"], found["UnreservedConcurrentExecutions"], reserved)
