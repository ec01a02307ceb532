"""One interpreter of states, which the other rules hang on; MiniStack has two, with no hooks.

It adds: the execution's own ``TimeoutSeconds`` (status TIMED_OUT), a stopped execution
that starts and retries nothing more, takes no result and keeps its status, and the definition of
its start for the whole execution. It remembers where an execution stood, for a redrive.
https://docs.aws.amazon.com/step-functions/latest/dg/statemachine-structure.html
https://docs.aws.amazon.com/step-functions/latest/apireference/API_StopExecution.html
"""

from __future__ import annotations

import contextvars
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

sfn: Any = import_module("ministack.services.stepfunctions")

START_SECONDS = 0.15  # MiniStack's own delay between StartExecution and the first state

# Called with the JSON text and what it is, at each state's entry and exit.
data_rules: list[Callable[[str, str], None]] = []
# Called with an execution that starts or is redriven; gives how long it may run, in seconds.
duration_rules: list[Callable[[dict[str, Any]], float | None]] = []

# The execution that a thread works for, and its redriveCount when the thread began.
_current: contextvars.ContextVar[tuple[dict[str, Any], int]] = contextvars.ContextVar("execution")


class EndedError(Exception):
    """The execution was stopped or has timed out; what is still at work ends."""


def current() -> dict[str, Any]:
    """Return the execution that this thread works for, a child's own.

    Raises:
        EndedError: it runs no more.
    """
    if is_over():
        raise EndedError
    return _current.get()[0]


def is_over() -> bool:
    """Return whether this thread's execution has ended, or was redriven and has another thread."""
    execution, generation = _current.get()
    return bool(execution["status"] != "RUNNING" or execution.get("redriveCount", 0) != generation)


def checked(data: Any, what: str) -> str:
    """Return `data` as JSON after every data rule saw it."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    for rule in data_rules:
        rule(text, what)
    return text


def walk(
    states: dict[str, Any], start: str, data: Any, execution: dict[str, Any], ctx: dict[str, Any]
) -> Any:
    """Run `states` from `start` with the input `data`; return the output.

    Raises:
        EndedError: the execution was stopped or timed out.
        ministack.services.stepfunctions._ExecutionError: a state failed.
    """
    name: str | None = start
    records = not execution.get("_express")  # Express workflows have no history
    places = execution.setdefault("_places", {})
    while name:
        state = states[name]
        kind = state["Type"]
        if not is_over():
            places[ctx.get("_branch", ())] = (name, data)
        current()
        ctx["State"] = {"Name": name, "EnteredTime": sfn.now_iso(), "RetryCount": 0}
        text = checked(data, f"input of the state '{name}'")
        if records:
            _record(execution, kind, "Entered", {"name": name, "input": text})
        data, following = _step(state, data, execution, ctx)
        text = checked(data, f"output of the state '{name}'")
        if records:
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
    if kind in ("Task", "Parallel", "Map"):
        output, following = run(state, data, execution, ctx)
    else:
        output, following = run(state, data, ctx)
    return output, following


def run_execution(arn: str) -> None:
    """Replace MiniStack's ``_run_execution``: run an execution that StartExecution recorded."""
    execution = sfn._executions.get(arn)
    if not execution:
        return
    place = first_place(execution)
    time.sleep(START_SECONDS)
    if not execution.get("redriveCount"):  # else it was stopped and redriven before it began
        run_from(execution, *place)


def first_place(execution: dict[str, Any]) -> tuple[str, Any]:
    """Return the first state of an execution and its input; note what it is run by."""
    machine = sfn._state_machines[execution["stateMachineArn"]]
    execution["_definition"] = json.loads(machine["definition"])
    execution["_type"], execution["_role"] = machine["type"], machine["roleArn"]
    return execution["_definition"]["StartAt"], json.loads(execution["input"])


def run_from(execution: dict[str, Any], start: str, data: Any) -> None:
    """Run the execution from the state `start` with its input `data`, to its end."""
    generation = execution.setdefault("redriveCount", 0)
    definition = execution["_definition"]
    alarm = _set_alarm(execution)
    ctx = context_of(execution, definition)
    # A pool of one thread: whatever the interpreter raises is looked at, not caught.
    with ThreadPoolExecutor(max_workers=1) as pool:
        future = submit(pool, execution, definition["States"], start, data, ctx)
        error = future.exception()
    if alarm is not None:
        alarm.cancel()
    if execution["status"] != "RUNNING" or execution["redriveCount"] != generation:
        return
    if error is None:
        _succeed(execution, future.result())
    else:
        sfn._fail_execution(execution, *name_error(error))


def submit(
    pool: ThreadPoolExecutor,
    execution: dict[str, Any],
    states: dict[str, Any],
    start: str,
    data: Any,
    ctx: dict[str, Any],
) -> Future[Any]:
    """Walk as `execution` in a thread of `pool`, in the account and region of this one."""

    def run() -> Any:
        _current.set((execution, execution["redriveCount"]))
        return walk(states, start, data, execution, ctx)

    return pool.submit(contextvars.copy_context().run, run)


def name_error(error: BaseException) -> tuple[str, str]:
    """Return an error's name and cause; what the interpreter cannot do is States.Runtime."""
    if isinstance(error, sfn._ExecutionError):
        return error.error, error.cause
    return "States.Runtime", f"{type(error).__name__}: {error}"


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
            "RedriveCount": execution.get("redriveCount", 0),
        },
        "StateMachine": {"Id": machine, "Name": machine.split(":", 6)[6]},
        "variables": {},
    }


def _succeed(execution: dict[str, Any], data: Any) -> None:
    output = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    execution.update(status="SUCCEEDED", output=output, stopDate=sfn.now_iso())
    details = {"executionSucceededEventDetails": {"output": output}}
    sfn._add_event(execution, "ExecutionSucceeded", details)
    sfn._emit_execution_status_event(execution)


def _set_alarm(execution: dict[str, Any]) -> threading.Timer | None:
    """Let the execution time out when its definition or a rule says so."""
    given = [execution["_definition"].get("TimeoutSeconds")]
    given += [rule(execution) for rule in duration_rules]
    limits = [seconds for seconds in given if seconds is not None]
    if not limits:
        return None
    seconds, generation = min(limits), execution["redriveCount"]

    def ring() -> None:
        if execution["status"] == "RUNNING" and execution["redriveCount"] == generation:
            _time_out(execution, seconds)

    # Its thread has a copy of this one's context: account and region with it.
    alarm = threading.Timer(seconds, contextvars.copy_context().run, [ring])
    alarm.daemon = True
    alarm.start()
    return alarm


def _time_out(execution: dict[str, Any], seconds: float) -> None:
    details = {
        "error": "States.Timeout",
        "cause": f"The execution did not end within {seconds:g} seconds",
    }
    execution.update(details, status="TIMED_OUT", stopDate=sfn.now_iso())
    sfn._add_event(execution, "ExecutionTimedOut", {"executionTimedOutEventDetails": details})
    sfn._emit_execution_status_event(execution)


def install() -> None:
    """Put this interpreter in the place of MiniStack's; `stepfunctions_branches` does the rest."""
    names = vars(sfn)
    names["_run_execution"] = run_execution
    call = names["_invoke_resource"]

    def invoke(resource: str, given: Any) -> Any:
        current()  # a stopped execution calls nothing more, nor retries
        answer = call(resource, given)
        current()  # nor takes the result of an earlier call, not even after a redrive
        return answer

    names["_invoke_resource"] = invoke
