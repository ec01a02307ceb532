"""Paths, choices, retries and catches of the state machine's language."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.simulation.functions import NamedError

Json = dict[str, Any]
NOT_TASK_FAILED = frozenset({"States.Timeout"})  # what States.TaskFailed does not match


def look(path: str, data: Any, context: Json | None = None) -> Any:
    """Return the value at a path of the data or of the context object."""
    if path.startswith("$$."):
        return (context or {})[path.removeprefix("$$.")]
    found: Any = data
    for part in re.findall(r"[^.\[\]]+", path.removeprefix("$")):
        found = found[int(part) if isinstance(found, list) else part]
    return found


def fill(template: Json, data: Json, context: Json) -> Json:
    """Return a template with its paths looked up."""
    return {
        key.removesuffix(".$"): look(value, data, context) if key.endswith(".$") else value
        for key, value in template.items()
    }


def output_of(state: Json, result: Any, data: Json) -> Json:
    """Return the output of a state with this result and the input `data`.

    It is the input with chosen fields of the result, a part of the result, or the input alone.
    """
    if "ResultSelector" not in state:
        path = state.get("OutputPath")
        return dict(look(path, result)) if path else data
    fields = {
        key.removesuffix(".$"): look(one, result) for key, one in state["ResultSelector"].items()
    }
    return {**data, state["ResultPath"].removeprefix("$."): fields}


def follow(state: Json) -> str | None:
    """Return the state after a state that succeeded; None: it was the last one."""
    return None if state.get("End") else str(state["Next"])


def choose(state: Json, data: Json) -> str:
    """Return the next state of a Choice."""
    for rule in state["Choices"]:
        if all(_holds(one, data) for one in rule.get("And", (rule,))):
            return str(rule["Next"])
    return str(state["Default"])


def _holds(rule: Json, data: Json) -> bool:
    """Say whether a comparison of a Choice rule holds."""
    if "IsPresent" in rule:
        return _is_present(rule["Variable"], data) is rule["IsPresent"]
    value = look(rule["Variable"], data)
    if "BooleanEquals" in rule:
        return value is rule["BooleanEquals"]
    if "NumericEquals" in rule:
        return bool(value == rule["NumericEquals"])
    return bool(value > rule["NumericGreaterThan"])


def _is_present(path: str, data: Json) -> bool:
    try:
        look(path, data)
    except KeyError:
        return False
    return True


def _matches(names: list[str], error: NamedError) -> bool:
    if error.name in names or "States.ALL" in names:
        return True
    return "States.TaskFailed" in names and error.name not in NOT_TASK_FAILED


def catch(state: Json, error: NamedError) -> str | None:
    """Return the state that an error leads to, None if nothing catches it."""
    for rule in state.get("Catch", []):
        if _matches(rule["ErrorEquals"], error):
            return str(rule["Next"])
    return None


def retry_wait(state: Json, error: NamedError, tried: dict[int, int]) -> float | None:
    """Return the longest wait before the next attempt, None if there is none."""
    for number, rule in enumerate(state.get("Retry", [])):
        if _matches(rule["ErrorEquals"], error):
            done = tried.get(number, 0)
            if done >= rule["MaxAttempts"]:
                return None
            tried[number] = done + 1
            wait = rule["IntervalSeconds"] * rule["BackoffRate"] ** done
            return float(min(wait, rule.get("MaxDelaySeconds", wait)))
    return None
