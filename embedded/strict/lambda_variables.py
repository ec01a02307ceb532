"""A function's environment variables have 4 KB in all.

docs.aws.amazon.com/lambda/latest/dg/gettingstarted-limits.html, "Function configuration".
"""

from __future__ import annotations

import json
from importlib import import_module
from typing import TYPE_CHECKING, Any

from embedded.strict import templates

if TYPE_CHECKING:
    from collections.abc import Callable

_lambda: Any = import_module("ministack.services.lambda_svc")
_responses: Any = import_module("ministack.core.responses")

MAX_BYTES = 4 * 1024


def install() -> None:
    """Refuse longer ones in CreateFunction, UpdateFunctionConfiguration and templates."""
    names = vars(_lambda)
    names["_create_function"] = _checked(names["_create_function"])
    names["_update_config"] = _checked(names["_update_config"])
    templates.before("AWS::Lambda::Function", problem_of)


def _checked(stock: Callable[..., Any]) -> Callable[..., Any]:
    def checked(*given: Any) -> Any:
        problem = problem_of(given[-1])
        if problem:
            return _responses.error_response_json("InvalidParameterValueException", problem, 400)
        return stock(*given)

    return checked


def problem_of(settings: dict[str, Any]) -> str | None:
    """Return AWS's sentence if the function's variables are too long."""
    variables = (settings.get("Environment") or {}).get("Variables") or {}
    measured = json.dumps(variables, separators=(",", ":"), ensure_ascii=False)
    if len(measured.encode()) <= MAX_BYTES:
        return None
    return (
        "Lambda was unable to configure your environment variables because the environment "
        f"variables you have provided exceeded the 4KB limit. String measured: {measured}"
    )
