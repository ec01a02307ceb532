"""The errorType of a failed invocation is the exception's class, as the runtime client sends it.

MiniStack's worker sends only the message, so that every exception is Runtime.HandlerError
(a bug of it: the better place for this). A worker that died is Runtime.ExitError.
https://docs.aws.amazon.com/lambda/latest/dg/python-exceptions.html
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

SENT = '"error": str(e), "trace": traceback.format_exc()}'
NAMED = '"error": str(e), "type": type(e).__name__, "trace": traceback.format_exc()}'
DIED = "Worker process died"


class _NamedMessage(str):  # noqa: SLOT000 - str takes none
    """An error's message that carries its type to where MiniStack builds the payload."""

    type: str


def install() -> None:
    """Let workers send the class, and put it into the payload."""
    runtime: Any = import_module("ministack.core.lambda_runtime")
    service: Any = import_module("ministack.services.lambda_svc")
    script = runtime._PYTHON_WORKER_SCRIPT
    if SENT not in script:
        raise RuntimeError("MiniStack's worker changed: see whether it names errors itself")
    runtime._PYTHON_WORKER_SCRIPT = script.replace(SENT, NAMED)
    invoke, execute = runtime.Worker.invoke, service._execute_function_warm

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
    service._execute_function_warm = execute_named
