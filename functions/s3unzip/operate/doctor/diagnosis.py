"""All checks of an environment, in the order in which an operator reads them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from s3unzip.errors import S3UnzipError
from s3unzip.operate.doctor import alarms, buckets, concurrency, intake, secret, stack
from s3unzip.operate.doctor.asking import not_checked
from s3unzip.operate.doctor.canary import try_canary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from s3unzip.operate.doctor.deployment import Deployment
    from s3unzip.operate.doctor.results import CheckResult

CANARY_SECONDS = 180.0  # a cold start of every function, and retries of some

CHECKS: Mapping[str, Callable[[Deployment], CheckResult]] = {
    "stack": stack.check_stack,
    "version": stack.check_version,
    concurrency.NAME: concurrency.check_concurrency,
    "ingest bucket": partial(buckets.check_bucket, role="ingest"),
    "destination bucket": partial(buckets.check_bucket, role="destination"),
    "work bucket": partial(buckets.check_bucket, role="work"),
    buckets.VERSIONING: buckets.check_versioning,
    buckets.PAYER: buckets.check_payer,
    buckets.TAGGING: buckets.check_tagging,
    buckets.KMS: buckets.check_key,
    secret.NAME: secret.check_secret,
    intake.EVENTS: intake.check_events,
    intake.RULES: intake.check_rules,
    intake.TRIGGER: intake.check_trigger,
    intake.QUEUE_NAME: intake.check_queue,
    intake.DEAD_LETTERS: intake.check_dead_letters,
    alarms.ALARMS: alarms.check_alarms,
    alarms.SUBSCRIPTIONS: alarms.check_subscriptions,
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
        return CHECKS[name](deployment)
    except S3UnzipError as error:
        return not_checked(name, error)
