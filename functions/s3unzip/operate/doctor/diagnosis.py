"""All checks of an environment, in the order in which an operator reads them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from s3unzip.errors import S3UnzipError
from s3unzip.operate.doctor import alarms, buckets, concurrency, intake, secret, stack
from s3unzip.operate.doctor.asking import not_checked
from s3unzip.operate.doctor.canary import try_canary
from s3unzip.operate.doctor.results import CheckResult

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from s3unzip.operate.doctor.deployment import Deployment
    from s3unzip.operate.doctor.results import Answer


CHECKS: Mapping[str, Callable[[Deployment], Answer]] = {
    "stack": stack.check_stack,
    "version": stack.check_version,
    "concurrency": concurrency.check_concurrency,
    "ingest bucket": partial(buckets.check_bucket, role="ingest"),
    "destination bucket": partial(buckets.check_bucket, role="destination"),
    "work bucket": partial(buckets.check_bucket, role="work"),
    "versioning": buckets.check_versioning,
    "requester pays": buckets.check_payer,
    "tagging": buckets.check_tagging,
    "kms key": buckets.check_key,
    "password secret": secret.check_secret,
    "events": intake.check_events,
    "rules": intake.check_rules,
    "trigger": intake.check_trigger,
    "queue": intake.check_queue,
    "dead letters": intake.check_dead_letters,
    "alarms": alarms.check_alarms,
    "subscriptions": alarms.check_subscriptions,
}


def examine(deployment: Deployment, *, canary_seconds: float | None) -> Iterator[CheckResult]:
    """Yield the result of each check as soon as it is known; the canary comes last.

    Args:
        deployment: the environment.
        canary_seconds: how long to wait for the canary's run; None: no canary.
    """
    for name in CHECKS:
        yield run_check(name, deployment)
    if canary_seconds is not None:
        yield from try_canary(deployment, canary_seconds)


def run_check(name: str, deployment: Deployment) -> CheckResult:
    """Return the result of one check; a check that cannot be made gives a warning."""
    try:
        answer = CHECKS[name](deployment)
    except S3UnzipError as error:
        answer = not_checked(error)
    return CheckResult(name, *answer)
