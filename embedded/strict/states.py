"""One interpreter of states, which the other rules hang on; MiniStack has two, with no hooks.

- The execution's own TimeoutSeconds; a stopped execution starts and retries nothing more, takes no
  result and keeps its status: statemachine-structure, API_StopExecution.
- 262,144 bytes of UTF-8 at most for each input, output and result. What exceeds them fails with
  States.DataLimitExceeded: service-quotas.
- A function's exception has its class's name; a throttled call is Lambda.TooManyRequestsException.
  States.ALL and States.TaskFailed match neither States.DataLimitExceeded nor States.Runtime. A
  retrier waits at most its MaxDelaySeconds; JitterStrategy FULL draws the wait:
  concepts-error-handling, bp-lambda-serviceexception.
- An inline Map runs 40 iterations at once at most, and has a MaxConcurrencyPath: state-map-inline.
- An execution's history has at most 25,000 events, three for each attempt of a task; the last one
  is its end: bp-history-limit. It fails with States.Runtime then (floci-io/floci#2734 measured it).
- A name has 1 to 80 characters, some of them excluded. StartExecution with the name and the input
  of a running execution succeeds again; with another input, or after its end, it is
  ExecutionAlreadyExists: API_StartExecution.

Pages below docs.aws.amazon.com/step-functions/latest, dg and apireference.
"""

import contextvars
import json
import random
import re
import threading
import time
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from importlib import import_module
from typing import Any

from embedded.strict import rights

sfn: Any = import_module("ministack.services.stepfunctions")

START_SECONDS = 0.15  # MiniStack's own delay between StartExecution and the first state
MAX_SLEEP = 60.0  # of a retrier in MiniStack
PAYLOAD_BYTES = 262_144
NAME_CHARACTERS = 80
HISTORY_EVENTS = 25_000
INLINE_MAP_CONCURRENCY = 40
LIMIT_EXCEEDED = "States.DataLimitExceeded"
RUNTIME = "States.Runtime"
# Payloads of invocations whose environment ended, as the documentation names them.
UNHANDLED = ("Sandbox.Timedout", "Runtime.ExitError", "Runtime.OutOfMemory")
NOT_IN_NAMES = re.compile(
    r"[\s<>{}\[\]?*\"#%\\^|~`$&,;:/\x00-\x1f\x7f-\x9f\ufffe\uffff\ud800-\udfff]"
)

# The execution that a thread works for.
_current: contextvars.ContextVar[dict[str, Any]] = contextvars.ContextVar("execution")


class EndedError(Exception):
    """The execution was stopped or has timed out; what is still at work ends."""


def current() -> dict[str, Any]:
    """Return the execution that this thread works for, a child's own."""
    if is_over():
        raise EndedError
    return _current.get()


def is_over() -> bool:
    """Return whether this thread's execution has ended."""
    return bool(_current.get()["status"] != "RUNNING")


def checked(data: Any, what: str) -> str:
    """Return `data` as JSON."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    refuse_large([text], what, brackets=0)
    return text


def refuse_large(texts: Iterable[str], what: str, brackets: int = 1) -> None:
    """Fail the state whose data the JSON array of `texts` is, where that is too large."""
    size = brackets
    for text in texts:
        size += len(text.encode()) + brackets
        if size > PAYLOAD_BYTES:
            cause = f"The {what} has more than {PAYLOAD_BYTES} bytes, the service limit."
            raise sfn._ExecutionError(LIMIT_EXCEEDED, cause)


def walk(
    states: dict[str, Any], start: str, data: Any, execution: dict[str, Any], ctx: dict[str, Any]
) -> Any:
    """Run `states` from `start` with the input `data`; return the output."""
    name: str | None = start
    while name:
        state = states[name]
        kind = state["Type"]
        current()
        ctx["State"] = {"Name": name, "EnteredTime": sfn.now_iso(), "RetryCount": 0}
        text = checked(data, f"input of the state '{name}'")
        _record(execution, kind, "Entered", {"name": name, "input": text})
        data, following = _step(state, data, execution, ctx)
        text = checked(data, f"output of the state '{name}'")
        _record(execution, kind, "Exited", {"name": name, "output": text})
        name = following
    return data


def _record(execution: dict[str, Any], kind: str, what: str, details: dict[str, Any]) -> None:
    sfn._add_event(execution, f"{kind}State{what}", {f"state{what}EventDetails": details})


def _step(
    state: dict[str, Any], data: Any, execution: dict[str, Any], ctx: dict[str, Any]
) -> tuple[Any, str | None]:
    """Run one state; return its output and the next state's name."""
    kind = state["Type"]
    if kind == "Succeed":
        return sfn._apply_output_path(state, sfn._apply_input_path(state, data, ctx), ctx), None
    if kind == "Fail":
        raise sfn._ExecutionError(*sfn._fail_state_error(state, data, ctx))
    run = vars(sfn)[f"_execute_{kind.lower()}"]
    if kind in ("Task", "Map"):
        output, following = run(state, data, execution, ctx)
    else:
        output, following = run(state, data, ctx)
    return output, following


def run_execution(arn: str) -> None:
    """Replace MiniStack's ``_run_execution``: run an execution that StartExecution recorded."""
    execution = sfn._executions.get(arn)
    if not execution:
        return
    machine = sfn._state_machines[execution["stateMachineArn"]]
    definition = json.loads(machine["definition"])
    execution["_role"] = machine["roleArn"]
    time.sleep(START_SECONDS)
    alarm = _set_alarm(execution, definition.get("TimeoutSeconds"))
    ctx = context_of(execution, definition)
    data = json.loads(execution["input"])
    # A pool of one thread: whatever the interpreter raises is looked at, not caught.
    with ThreadPoolExecutor(max_workers=1) as pool:
        future = submit(pool, execution, definition, data, ctx)
        error = future.exception()
    if alarm is not None:
        alarm.cancel()
    if execution["status"] != "RUNNING":
        return
    if error is not None:
        sfn._fail_execution(execution, *name_error(error))
        return
    output = json.dumps(future.result(), ensure_ascii=False, separators=(",", ":"))
    execution.update(status="SUCCEEDED", output=output, stopDate=sfn.now_iso())
    details = {"executionSucceededEventDetails": {"output": output}}
    sfn._add_event(execution, "ExecutionSucceeded", details)
    sfn._emit_execution_status_event(execution)


def submit(
    pool: ThreadPoolExecutor,
    execution: dict[str, Any],
    machine: dict[str, Any],
    data: Any,
    ctx: dict[str, Any],
) -> Future[Any]:
    """Walk as `execution` in a thread of `pool`, in the account and region of this one."""

    def run() -> Any:
        _current.set(execution)
        return walk(machine["States"], machine["StartAt"], data, execution, ctx)

    return pool.submit(contextvars.copy_context().run, run)


def name_error(error: BaseException) -> tuple[str, str]:
    """Return an error's name and cause; what the interpreter cannot do is States.Runtime."""
    if isinstance(error, sfn._ExecutionError):
        return error.error, error.cause
    return RUNTIME, f"{type(error).__name__}: {error}"


def context_of(execution: dict[str, Any], definition: dict[str, Any]) -> dict[str, Any]:
    """Return the context object, ``$$``, of an execution."""
    machine = execution["stateMachineArn"]
    return {
        "QueryLanguage": definition.get("QueryLanguage", "JSONPath"),
        "Execution": {
            "Id": execution["executionArn"],
            "Input": json.loads(execution["input"]),
            "Name": execution["name"],
            "RoleArn": execution.get("_role", ""),
            "StartTime": execution["startDate"],
        },
        "StateMachine": {"Id": machine, "Name": machine.split(":", 6)[6]},
        "variables": {},
    }


def _set_alarm(execution: dict[str, Any], seconds: float | None) -> threading.Timer | None:
    """Let the execution time out when its definition says so."""
    if seconds is None:
        return None

    def ring() -> None:
        if execution["status"] == "RUNNING":
            cause = f"The execution did not end within {seconds:g} seconds"
            details = {"error": "States.Timeout", "cause": cause}
            execution.update(details, status="TIMED_OUT", stopDate=sfn.now_iso())
            event = {"executionTimedOutEventDetails": details}
            sfn._add_event(execution, "ExecutionTimedOut", event)
            sfn._emit_execution_status_event(execution)

    # Its thread has a copy of this one's context: account and region with it.
    alarm = threading.Timer(seconds, contextvars.copy_context().run, [ring])
    alarm.daemon = True
    alarm.start()
    return alarm


def error_matches(wanted: list[str], error: str) -> bool:
    """Return whether an ErrorEquals matches the error's name."""
    if error == RUNTIME:
        return False
    if error in wanted or error == LIMIT_EXCEEDED:
        return error in wanted
    return "States.ALL" in wanted or ("States.TaskFailed" in wanted and error != "States.Timeout")


def with_delay(retrier: dict[str, Any], retries: int) -> dict[str, Any]:
    """Return the retrier with its next wait; what MiniStack would cut off is waited for here."""
    wait = retrier.get("IntervalSeconds", 1) * retrier.get("BackoffRate", 2.0) ** retries
    wait = min(wait, retrier.get("MaxDelaySeconds", wait))
    if retrier.get("JitterStrategy") == "FULL":
        wait = random.uniform(0, wait)  # noqa: S311 - no secret
    sfn._scaled_sleep(max(0.0, wait - MAX_SLEEP))
    return {**retrier, "IntervalSeconds": wait, "BackoffRate": 1}


def name_lambda_error(error: str, cause: str) -> tuple[str, str]:
    """Return error and cause as AWS reports them for what MiniStack reports."""
    if error in UNHANDLED:
        return "Lambda.Unknown", cause
    if error != "Lambda.Unknown" or not cause.startswith("{"):
        return error, cause
    answer = json.loads(cause)  # of the Lambda service, which did not run the function
    kind = answer.get("__type")
    return (f"Lambda.{kind}", answer.get("message", cause)) if kind else (error, cause)


def install() -> None:
    """Put this interpreter in the place of MiniStack's."""
    names = vars(sfn)
    names["_run_execution"] = run_execution
    names["_error_matches"] = error_matches
    _bound_histories(names)
    _call_functions(names)
    _run_inline_maps(names)
    _check_starts(names)


def _bound_histories(names: dict[str, Any]) -> None:
    add = names["_add_event"]

    def add_event(execution: dict[str, Any], kind: str, details: Any = None) -> Any:
        if len(execution["events"]) >= HISTORY_EVENTS - 1 and not kind.startswith("Execution"):
            cause = (
                f"The execution reached the maximum number of history events ({HISTORY_EVENTS})."
            )
            raise sfn._ExecutionError(RUNTIME, cause)
        event = add(execution, kind, details)
        if kind == "TaskScheduled":
            add(execution, "TaskStarted")  # MiniStack has no event of it
        return event

    names["_add_event"] = add_event


def _call_functions(names: dict[str, Any]) -> None:
    find, call = names["_find_matching_retrier"], names["_call_lambda"]
    invoke = names["_invoke_resource"]

    def find_retrier(
        retriers: list[dict[str, Any]], error: str, counts: dict[int, int]
    ) -> tuple[dict[str, Any] | None, int]:
        retrier, index = find(retriers, error, counts)
        return (with_delay(retrier, counts.get(index, 0)) if retrier else None), index

    def call_lambda(function: str, event: Any) -> Any:
        try:
            rights.check_role(current(), "lambda:InvokeFunction", rights.function_arn(function))
            return call(function, event)
        except rights.DeniedError as denied:
            raise sfn._ExecutionError("Lambda.AWSLambdaException", str(denied)) from None
        except sfn._ExecutionError as error:
            raise sfn._ExecutionError(*name_lambda_error(error.error, error.cause)) from None

    def invoke_resource(resource: str, given: Any) -> Any:
        current()  # a stopped execution calls nothing more, nor retries
        checked(given, f"input of the task '{resource}' after Parameters")
        result = invoke(resource, given)
        checked(result, f"result of the task '{resource}'")
        current()  # nor takes the result of an earlier call
        return result

    names["_find_matching_retrier"] = find_retrier
    names["_call_lambda"] = call_lambda
    names["_invoke_resource"] = invoke_resource


def _run_inline_maps(names: dict[str, Any]) -> None:
    run = names["_run_map_items"]

    def run_map_items(
        state: dict[str, Any], data: Any, execution: dict[str, Any], ctx: dict[str, Any]
    ) -> Any:
        if state["ItemProcessor"].get("ProcessorConfig", {}).get("Mode") != "DISTRIBUTED":
            wanted = state.get("MaxConcurrency")
            if path := state.get("MaxConcurrencyPath"):
                wanted = sfn._resolve_path_or_ctx(path, data, ctx)
            at_once = min(int(wanted or INLINE_MAP_CONCURRENCY), INLINE_MAP_CONCURRENCY)
            state = {**state, "MaxConcurrency": at_once}
        return run(state, data, execution, ctx)

    names["_run_map_items"] = run_map_items


def _check_starts(names: dict[str, Any]) -> None:
    create, start = names["_create_state_machine"], names["_start_execution"]

    def refused(name: str) -> Any:
        return sfn.error_response_json("InvalidName", f"Invalid Name: '{name}'", 400)

    def create_state_machine(data: dict[str, Any]) -> Any:
        name = data.get("name", "")
        return create(data) if is_name(name) else refused(name)

    def start_execution(data: dict[str, Any]) -> Any:
        name, given = data.get("name"), data.get("input", "{}")
        if name is not None and not is_name(name):
            return refused(name)
        if len(given.encode()) > PAYLOAD_BYTES:
            message = f"Value at 'input' must have length less than or equal to {PAYLOAD_BYTES}"
            return sfn.error_response_json("ValidationException", message, 400)
        machine = sfn._resolve_state_machine_arn(data.get("stateMachineArn", "")) or ""
        arn = f"{machine.replace(':stateMachine:', ':execution:')}:{name}"
        same = sfn._executions.get(arn)
        if same is not None and same["status"] == "RUNNING" and same["input"] == given:
            return sfn.json_response({"executionArn": arn, "startDate": same["startDate"]})
        return start(data)

    names["_create_state_machine"] = create_state_machine
    names["_start_execution"] = start_execution


def is_name(name: str) -> bool:
    """Return whether AWS accepts `name` for a state machine or an execution."""
    return 1 <= len(name) <= NAME_CHARACTERS and not NOT_IN_NAMES.search(name)
