"""Size limits of invocations.

6 MB to a function and 6 MB back where the caller waits, 1 MB where it does not
(docs.aws.amazon.com/lambda/latest/api/API_Invoke.html). A longer response is the error
Function.ResponseSizeTooLarge; a longer request is RequestEntityTooLargeException.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from embedded.strict.lambda_runtime_client import RuntimeClientWorker

_lambda: Any = import_module("ministack.services.lambda_svc")
_responses: Any = import_module("ministack.core.responses")

REQUEST_BYTES = 6 * 1024**2
EVENT_BYTES = 1024**2
RESPONSE_BYTES = REQUEST_BYTES + 100  # AWS's message has this figure


def install() -> None:
    """Measure requests where they arrive and responses where the runtime client posts them."""
    handle, build = _lambda.handle_request, RuntimeClientWorker._build_handler_class

    async def handle_request(
        method: str, path: str, headers: dict[str, str], body: bytes, query: dict[str, Any]
    ) -> Any:
        waits = headers.get("x-amz-invocation-type", "RequestResponse") != "Event"
        invokes = method == "POST" and path.rstrip("/").endswith("/invocations")
        problem = _request_problem(len(body or b""), waits=waits) if invokes else None
        if problem:
            return _responses.error_response_json("RequestTooLargeException", problem, 413)
        return await handle(method, path, headers, body, query)

    def build_handler_class(worker: Any, generation: int, pending: Any) -> type:
        return _limited(build(worker, generation, pending), worker, generation)

    vars(_lambda)["handle_request"] = handle_request
    RuntimeClientWorker._build_handler_class = build_handler_class  # type: ignore[method-assign,assignment]


def _request_problem(size: int, *, waits: bool) -> str | None:
    if waits and size > REQUEST_BYTES:
        return (
            f"Request must be smaller than {REQUEST_BYTES} bytes for the InvokeFunction operation"
        )
    if not waits and size > EVENT_BYTES:
        return (
            f"{size} byte payload is too large for the Event invocation type "
            f"(limit {EVENT_BYTES} bytes)"
        )
    return None


def _limited(stock: Any, worker: Any, generation: int) -> type:
    class Limited(stock):  # type: ignore[misc]  # MiniStack has no types
        """MiniStack's Runtime API, which answers a response that is too long with 413."""

        def do_POST(self) -> None:  # noqa: N802 - of http.server
            """Take what the runtime client posts."""
            size = int(self.headers.get("Content-Length") or 0)
            if size <= RESPONSE_BYTES or not self.path.endswith("/response"):
                super().do_POST()
                return
            self._read_body()
            request = self.path.split("/")[-2]
            failure = {
                "errorType": "Function.ResponseSizeTooLarge",
                "errorMessage": "Response payload size exceeded maximum allowed payload size "
                f"({RESPONSE_BYTES} bytes).",
            }
            worker._record_result(generation, request, "error", failure)
            self._respond(413)

    return Limited
