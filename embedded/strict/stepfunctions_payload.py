"""262,144 bytes of UTF-8 at most: each state's input, output and result, and an execution's input.

A state that exceeds them fails with States.DataLimitExceeded, which States.ALL does not
catch. The result of a Distributed Map is all its children's outputs, unless a
ResultWriter takes them; it is measured before ResultPath and OutputPath, so that null
there does not help (https://github.com/aws/aws-cdk/issues/24799).
https://docs.aws.amazon.com/step-functions/latest/dg/service-quotas.html
https://docs.aws.amazon.com/step-functions/latest/dg/concepts-error-handling.html
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from embedded.strict import stepfunctions_engine as engine
from embedded.strict.limits import PAYLOAD_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable

LIMIT_EXCEEDED = "States.DataLimitExceeded"


def byte_size(text: str) -> int:
    """Return the length of `text` in UTF-8; only text near the limit is encoded."""
    return len(text) if len(text) * 4 <= PAYLOAD_BYTES else len(text.encode())


def refuse_large(text: str, what: str) -> None:
    """Fail the state whose data `text` is, where that is too large.

    Raises:
        ministack.services.stepfunctions._ExecutionError: States.DataLimitExceeded.
    """
    if byte_size(text) > PAYLOAD_BYTES:
        raise _exceeded(what)


def refuse_large_array(texts: Iterable[str], what: str) -> None:
    """Fail where the JSON array of `texts` is too large; it is not built for that.

    Raises:
        ministack.services.stepfunctions._ExecutionError: States.DataLimitExceeded.
    """
    size = 1
    for text in texts:
        size += len(text.encode()) + 1
        if size > PAYLOAD_BYTES:
            raise _exceeded(what)


def _exceeded(what: str) -> Exception:
    cause = f"The {what} has more than {PAYLOAD_BYTES} bytes, the service limit."
    error: Exception = engine.sfn._ExecutionError(LIMIT_EXCEEDED, cause)
    return error


def install() -> None:
    """Measure what enters and leaves states, tasks and executions."""
    engine.data_rules.append(refuse_large)
    names = vars(engine.sfn)
    call, start = names["_invoke_resource"], names["_start_execution"]

    def invoke(resource: str, given: Any) -> Any:
        engine.checked(given, f"input of the task '{resource}' after Parameters")
        result = call(resource, given)
        engine.checked(result, f"result of the task '{resource}'")
        return result

    def start_execution(data: dict[str, Any]) -> Any:
        if len(data.get("input", "").encode()) > PAYLOAD_BYTES:
            return engine.sfn.error_response_json(
                "ValidationException",
                "1 validation error detected: Value at 'input' failed to satisfy constraint: "
                f"Member must have length less than or equal to {PAYLOAD_BYTES}",
                400,
            )
        return start(data)

    names["_invoke_resource"] = invoke
    names["_start_execution"] = start_execution
