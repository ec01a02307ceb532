"""Functions: the names of their errors, their concurrency, and their event sources.

- The errorType of a failed invocation is the exception's class; MiniStack's worker sends only the
  message. A worker that died is Runtime.ExitError: python-exceptions.
- Reservations reduce what is free for others; calls beyond it are throttled. The account has 1,000
  in a Region; ``LAMBDA_ACCOUNT_CONCURRENCY`` sets another quota (new accounts have as few as 10).
- A function without a reservation finds only what nobody has reserved: lambda-concurrency.
- At least 100 stay unreserved, or all of a smaller quota (``LAMBDA_UNRESERVED_CONCURRENCY``
  sets another minimum): configuration-concurrency.
- A template's ReservedConcurrentExecutions counts; MiniStack ignores it. An update of a stack
  changes the reservation only if the two templates differ in it.
- A function has at most ``LAMBDA_MEMORY_QUOTA`` MB of memory (new accounts have 3,008), which is
  checked before anything else of a request: gettingstarted-limits.
- An SQS event source polls up to its own maximum, whatever is reserved (1,000 without one;
  ``LAMBDA_POLLERS`` sets another number, for a small machine), so that a function
  with less is throttled and the message comes back after its visibility timeout: with-sqs,
  "services-sqs-errorhandling".
- The queue of an event source has a visibility timeout of at least the function's timeout, and the
  function's role may receive and delete its messages: services-sqs-configure.

All pages below docs.aws.amazon.com/lambda/latest/dg. MiniStack answers a throttled call as
AWS does: 429, TooManyRequestsException, with the reason.
"""

import os
from importlib import import_module
from typing import Any

from embedded.strict import rights, templates

_lambda: Any = import_module("ministack.services.lambda_svc")
_responses: Any = import_module("ministack.core.responses")

ACCOUNT = 1_000
UNRESERVED = 100
POLLERS = 1_000  # of an event source without a maximum, at most: services-sqs-scaling
MEMORY = 10_240  # MB


DIED = "Worker process died"
SENT = '"error": str(e), "trace": traceback.format_exc()}'
NAMED = '"error": str(e), "type": type(e).__name__, "trace": traceback.format_exc()}'
ACTIONS = ("ReceiveMessage", "DeleteMessage", "GetQueueAttributes")  # of SQS


class _NamedMessage(str):  # noqa: SLOT000 - str takes none
    """An error's message that carries its type to where MiniStack builds the payload."""

    type: str


def install() -> None:
    """Install all rules."""
    _name_errors()
    _share_concurrency(vars(_lambda))
    _limit_memory(vars(_lambda))
    templates.around("AWS::Lambda::EventSourceMapping", check=_problem_of_source)


def _share_concurrency(names: dict[str, Any]) -> None:
    names["_ACCOUNT_CONCURRENCY_CAP"] = int(os.environ.get("LAMBDA_ACCOUNT_CONCURRENCY", ACCOUNT))
    acquire, put = names["_acquire_execution_slot"], names["_put_function_concurrency"]

    def acquire_slot(func: dict[str, Any], config: dict[str, Any]) -> Any:
        if _lambda._reserved_concurrency(func, config) is None and not _unreserved_left():
            return None, "account"
        return acquire(func, config)

    def put_concurrency(name: str, data: dict[str, Any]) -> Any:
        problem = _problem(name, data.get("ReservedConcurrentExecutions"))
        if problem:
            return _responses.error_response_json("InvalidParameterValueException", problem, 400)
        return put(name, data)

    def reserve(physical_id: str, old: dict[str, Any], new: dict[str, Any]) -> None:
        wanted = new.get("ReservedConcurrentExecutions")
        if wanted == old.get("ReservedConcurrentExecutions"):
            return
        value = None if wanted is None else int(wanted)
        problem = _problem(physical_id, value)
        if problem:
            raise ValueError(problem)
        _lambda._functions[physical_id]["concurrency"] = value

    def pollers(esm: dict[str, Any], *_given: Any) -> int:
        polled = int((esm.get("ScalingConfig") or {}).get("MaximumConcurrency") or POLLERS)
        return min(polled, int(os.environ.get("LAMBDA_POLLERS", polled)))

    names["_acquire_execution_slot"] = acquire_slot
    names["_put_function_concurrency"] = put_concurrency
    names["_sqs_esm_concurrency"] = pollers
    templates.around("AWS::Lambda::Function", finish=reserve)


def _limit_memory(names: dict[str, Any]) -> None:
    quota = int(os.environ.get("LAMBDA_MEMORY_QUOTA", MEMORY))
    update_config = names["_update_config"]

    def problem(settings: dict[str, Any]) -> str | None:
        if int(settings.get("MemorySize", 128)) <= quota:
            return None
        return (
            "'MemorySize' value failed to satisfy constraint: "
            f"Member must have value less than or equal to {quota}"
        )

    def update(name: str, data: dict[str, Any]) -> Any:
        said = problem(data)
        if said:
            return _responses.error_response_json("ValidationException", said, 400)
        return update_config(name, data)

    names["_update_config"] = update
    templates.around("AWS::Lambda::Function", check=problem)


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
    least = min(int(os.environ.get("LAMBDA_UNRESERVED_CONCURRENCY", UNRESERVED)), quota)
    others = sum(value for other, value in _reservations().items() if other != name)
    if quota - others - wanted >= least:
        return None
    return (
        f"Specified ReservedConcurrentExecutions for function decreases account's "
        f"UnreservedConcurrentExecution below its minimum value of [{least}]."
    )


def _name_errors() -> None:
    """Let workers send the class, and put it into the payload."""
    runtime: Any = import_module("ministack.core.lambda_runtime")
    script = runtime._PYTHON_WORKER_SCRIPT
    if SENT not in script:
        raise RuntimeError("MiniStack's worker changed: see whether it names errors itself")
    runtime._PYTHON_WORKER_SCRIPT = script.replace(SENT, NAMED)
    invoke, execute = runtime.Worker.invoke, _lambda._execute_function_warm

    def invoke_named(worker: Any, *given: Any, **named: Any) -> dict[str, Any]:
        answer: dict[str, Any] = invoke(worker, *given, **named)
        kind = "Runtime.ExitError" if answer.get("error") == DIED else answer.get("type")
        if kind:
            message = _NamedMessage(answer["error"])
            message.type = kind
            answer["error"] = message
        return answer

    def execute_named(function: Any, event: Any, request: str) -> dict[str, Any]:
        answer: dict[str, Any] = execute(function, event, request)
        body = answer.get("body")
        message = body.get("errorMessage") if isinstance(body, dict) else None
        if isinstance(body, dict) and isinstance(message, _NamedMessage):
            body["errorType"] = message.type
        return answer

    runtime.Worker.invoke = invoke_named
    _lambda._execute_function_warm = execute_named


def _problem_of_source(settings: dict[str, Any]) -> str | None:
    """Return AWS's sentence if this event source cannot be made."""
    arn = str(settings.get("EventSourceArn", ""))
    name, _qualifier = _lambda._resolve_name_and_qualifier(str(settings.get("FunctionName", "")))
    function = _lambda._functions.get(name)
    if ":sqs:" not in arn or function is None:
        return None
    config = function.get("config") or {}
    role = str(config.get("Role", ""))
    for action in ACTIONS:
        if role and rights.refusal(role, f"sqs:{action}", arn, name):
            return f"The function execution role does not have permissions to call {action} on SQS"
    queue = import_module("ministack.services.sqs")._queue_by_arn(arn)
    visible = int(queue["attributes"].get("VisibilityTimeout", "30")) if queue else None
    timeout = int(config.get("Timeout", 3))
    if visible is not None and visible < timeout:
        return (
            f"Queue visibility timeout: {visible} seconds is less than "
            f"Function timeout: {timeout} seconds"
        )
    return None
