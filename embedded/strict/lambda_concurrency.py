"""Concurrency: reservations reduce what is free for others; calls beyond it are throttled.

- The account has 1,000 in a Region; ``LAMBDA_ACCOUNT_CONCURRENCY`` sets another quota (new
  accounts have as few as 10). MiniStack's own default depends on the machine's memory.
- A function without a reservation finds only what nobody has reserved: lambda-concurrency.
- At least 100 stay unreserved, or all of a smaller quota (``LAMBDA_UNRESERVED_CONCURRENCY``
  sets another minimum): configuration-concurrency.
- A template's ReservedConcurrentExecutions counts; MiniStack ignores it.
- An SQS event source polls up to its own maximum, whatever is reserved, so that a function
  with less is throttled and the message comes back after its visibility timeout: with-sqs,
  "services-sqs-errorhandling".

All pages below docs.aws.amazon.com/lambda/latest/dg. MiniStack answers a throttled call as
AWS does: 429, TooManyRequestsException, with the reason.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

from embedded.strict import templates

_lambda: Any = import_module("ministack.services.lambda_svc")
_responses: Any = import_module("ministack.core.responses")

ACCOUNT = 1_000
UNRESERVED = 100
POLLERS = 5  # an SQS event source begins with five


def install() -> None:
    """Set the quota, and share it as Lambda does."""
    names = vars(_lambda)
    names["_ACCOUNT_CONCURRENCY_CAP"] = int(os.environ.get("LAMBDA_ACCOUNT_CONCURRENCY", ACCOUNT))
    acquire, put = names["_acquire_execution_slot"], names["_put_function_concurrency"]

    def acquire_slot(func: dict[str, Any], config: dict[str, Any]) -> tuple[str | None, Any]:
        if _lambda._reserved_concurrency(func, config) is None and not _unreserved_left():
            return None, "account"
        key, limit = acquire(func, config)
        return key, limit

    def put_concurrency(name: str, data: dict[str, Any]) -> Any:
        problem = _problem(name, data.get("ReservedConcurrentExecutions"))
        if problem:
            return _responses.error_response_json("InvalidParameterValueException", problem, 400)
        return put(name, data)

    def reserve(physical_id: str, properties: dict[str, Any]) -> None:
        wanted = properties.get("ReservedConcurrentExecutions")
        value = None if wanted is None else int(wanted)
        problem = None if value is None else _problem(physical_id, value)
        if problem:
            raise ValueError(problem)
        _lambda._functions[physical_id]["concurrency"] = value

    def pollers(esm: dict[str, Any], *_given: Any) -> int:
        return int((esm.get("ScalingConfig") or {}).get("MaximumConcurrency") or POLLERS)

    names["_acquire_execution_slot"] = acquire_slot
    names["_put_function_concurrency"] = put_concurrency
    names["_sqs_esm_concurrency"] = pollers
    templates.after("AWS::Lambda::Function", reserve)


def _reservations() -> dict[str, int]:
    """Return what each function that has a reservation holds back."""
    functions = _lambda._functions
    found = {name: functions[name].get("concurrency") for name in list(functions.keys())}
    return {name: int(value) for name, value in found.items() if value is not None}


def _unreserved_left() -> bool:
    reserved = _reservations()
    busy = _lambda.executions_in_flight()[1]
    free = sum(count for key, count in busy.items() if key.rsplit(":", 1)[-1] not in reserved)
    quota: int = _lambda._ACCOUNT_CONCURRENCY_CAP
    return bool(free < quota - sum(reserved.values()))


def _problem(name: str, wanted: int | None) -> str | None:
    """Return AWS's sentence if so much cannot be reserved."""
    if wanted is None or name not in _lambda._functions:
        return None
    quota: int = _lambda._ACCOUNT_CONCURRENCY_CAP
    wanted_free = int(os.environ.get("LAMBDA_UNRESERVED_CONCURRENCY", UNRESERVED))
    least = min(wanted_free, quota)
    others = sum(value for other, value in _reservations().items() if other != name)
    if quota - others - wanted >= least:
        return None
    return (
        f"Specified ReservedConcurrentExecutions for function decreases account's "
        f"UnreservedConcurrentExecution below its minimum value of [{least}]."
    )
