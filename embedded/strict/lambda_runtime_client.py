"""Python functions run in AWS's own runtime client, shut in as an execution environment is.

MiniStack's stock worker reports each exception as ``Runtime.HandlerError``. With
awslambdaric the error is the exception's class, ``Runtime.ExitError`` where the process
ended, ``Runtime.ImportModuleError`` where the handler cannot be imported and
``Sandbox.Timedout`` after the function's timeout: docs.aws.amazon.com/lambda/latest/dg,
"python-exceptions" and "troubleshooting-execution". What the function sees of the machine
is `embedded.sandbox`; its variables are those of "configuration-envvars", without ``HOME``.
The pages "gettingstarted-limits" and "configuration-ephemeral-storage" give the size of
``/tmp``: 512 MB unless the function asks for more.
"""

from __future__ import annotations

import os
import select
import shlex
import sys
import threading
import time
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    import queue
    from collections.abc import Callable

_lambda: Any = import_module("ministack.services.lambda_svc")
_runtime: Any = import_module("ministack.core.lambda_runtime")
_responses: Any = import_module("ministack.core.responses")
_tls: Any = import_module("ministack.core.tls")

SANDBOX = Path(__file__).resolve().parent.parent / "sandbox.py"
TMP_MIB = 512
IDLE_FACTOR = 50.0  # of MiniStack's wait of 0.1 s
# Of the machine's variables, what a function needs here: where its libraries are, and what
# it shares with a test.
KEPT = ("PYTHONPATH", "EMBEDDED_SHARED")
_trusting = threading.Lock()
_trusted: dict[str, str] = {}


class _Patient:
    """The queue of an environment's invocations, for the thread that waits for the next one.

    MiniStack would wake ten times a second in each environment that has nothing to do. The process
    of an environment that ends is killed, so nobody waits for this thread.
    """

    def __init__(self, pending: queue.Queue[Any]) -> None:
        self._pending = pending

    def get(self, timeout: float) -> Any:
        """Return the next invocation; raise `queue.Empty` much later than `timeout`."""
        return self._pending.get(timeout=timeout * IDLE_FACTOR)


class RuntimeClientWorker(_runtime.ProvidedWorker):  # type: ignore[misc]  # MiniStack has no types
    """One execution environment: awslambdaric, fed by MiniStack's Runtime API server."""

    def __init__(self, func_name: str, config: dict[str, Any], code_zip: bytes) -> None:
        super().__init__(func_name, config, code_zip)
        self._reading = threading.Lock()
        self._output = -1
        self._rest = b""
        self._ended: Any = None

    def _build_handler_class(self, generation: int, pending: queue.Queue[Any]) -> type:
        stock = super()._build_handler_class(generation, _Patient(pending))
        # Headers and body are two writes: Nagle would hold the second back for 40 ms.
        return type("RuntimeApi", (stock,), {"disable_nagle_algorithm": True})

    def _begin_reading(self, stream: IO[bytes]) -> int:
        """Make a pipe the one that is read, unless it is; return its descriptor, -1 at its end."""
        with self._reading:
            if stream.closed:
                return -1
            output = stream.fileno()
            if output != self._output:
                self._output, self._rest = output, b""
                os.set_blocking(output, False)
            return output

    def _pump_output(self, stream: IO[bytes], log_queue: queue.Queue[str]) -> None:
        """Read what the function prints until it ends; `_drain_stderr_bounded` reads too.

        Processes that a function left behind may hold its pipe open after the next start, which
        reads another pipe.
        """
        output = self._begin_reading(stream)
        waiting = select.poll()
        waiting.register(output, select.POLLIN)
        open_ = True
        while open_:
            waiting.poll()
            with self._reading:
                open_ = self._output == output and self._read_lines(log_queue)
        with self._reading:
            if self._output == output:
                self._output = -1
            stream.close()

    def _read_lines(self, log_queue: queue.Queue[str]) -> bool:
        """Queue all lines there are; False at the end of the output."""
        while True:
            try:
                data = os.read(self._output, 1 << 16)
            except BlockingIOError:
                return True
            *lines, self._rest = (self._rest + data).split(b"\n")
            if not data and self._rest:
                lines, self._rest = [self._rest], b""
            for line in lines:
                if not log_queue.full():
                    log_queue.put_nowait(line.decode(errors="replace"))
            if not data:
                return False

    def _drain_stderr_bounded(self, *_waits: float, **_named: float) -> str:
        """Return what the function printed: all of it is in the pipe before its answer is sent."""
        with self._reading:
            if self._output >= 0:
                self._read_lines(self._stderr_queue)
        return str(self._drain_stderr())

    def _teardown(self) -> None:
        self._ended = self._proc or self._ended
        super()._teardown()

    def _await_init(self, init_timeout: float | None = None) -> None:
        """Wait for the first poll; raise what AWS names the failure of an import."""
        # Here, because the thread that reads may get its first turn after the first invocation.
        self._begin_reading(self._proc.stdout)
        try:
            super()._await_init(init_timeout)
        except _runtime.ProvidedInitTimeout:
            raise
        except RuntimeError as error:
            said = self._init_error
            if isinstance(said, dict):
                raise _runtime.ProvidedRuntimeError(
                    said.get("errorMessage", ""), said.get("errorType", "Runtime.Unknown")
                ) from error
            raise _runtime.ProvidedRuntimeError(
                f"RequestId: {_responses.new_uuid()} Error: Runtime exited during its start",
                "Runtime.ExitError",
            ) from error

    def _init_log_suffix(self) -> str:
        return ""  # what was printed stays where it is, for the function's log

    def invoke(self, event: Any, request_id: str, **given: Any) -> dict[str, Any]:
        """Run one invocation; its failures have AWS's words.

        A start that fails ends this environment only, and what it printed is in the function's
        log. MiniStack ends all environments of the function then, in the middle of their own
        starts, and drops the output.
        """
        try:
            answer: dict[str, Any] = super().invoke(event, request_id, **given)
        except _runtime.ProvidedRuntimeError as error:
            said = {"errorMessage": str(error), "errorType": error.error_type}
            return {"status": "error", "error_payload": said, "log": str(self._drain_stderr())}
        failure = answer.get("error_payload")
        if not isinstance(failure, dict):
            return answer
        kind = failure.get("errorType")
        if kind == "Runtime.ExitError":
            failure["errorMessage"] = f"RequestId: {request_id} Error: {self._exit_words()}"
        elif kind == "Function.ResponseSizeTooLarge":
            self._teardown()  # the runtime client ends when it is told 413
        elif kind == "Sandbox.Timedout":
            seconds = float(self.config.get("Timeout", 3))
            text = f"Error: Task timed out after {seconds:.2f} seconds"
            failure["errorMessage"] = f"RequestId: {request_id} {text}"
        return answer

    def _exit_words(self) -> str:
        code = None if self._ended is None else self._ended.poll()
        if code is None or code == 0:
            return "Runtime exited without providing a reason"
        if code < 0:
            return f"Runtime exited with error: {_signal_words(-code)}"
        return f"Runtime exited with error: exit status {code}"


def _signal_words(number: int) -> str:
    return "signal: killed" if number == 9 else f"signal: {number}"


def install() -> None:
    """Run python functions in `RuntimeClientWorker`; leave other runtimes as they are.

    Where awslambdaric cannot be installed (it is for Linux), MiniStack's own worker
    runs them, and only the names of errors are AWS's.
    """
    if find_spec("awslambdaric") is None:
        import_module("embedded.strict.lambda_error_names").install()
        return
    stock_class = _runtime._worker_class_for
    stock_environment = _lambda._provided_worker_env
    stock_warm = _lambda._execute_function_warm

    def worker_class(config: dict[str, Any]) -> Any:
        return RuntimeClientWorker if _is_python(config) else stock_class(config)

    def environment(config: dict[str, Any], code_dir: str, port: int) -> Any:
        if not _is_python(config):
            return stock_environment(config, code_dir, port)
        return function_variables(config, port)

    def execute(func: dict[str, Any], event: Any, request_id: str) -> Any:
        python = _is_python(func.get("config") or func)
        run = _lambda._execute_function_provided_warm if python else stock_warm
        return run(func, event, request_id)

    vars(_runtime)["_worker_class_for"] = worker_class
    vars(_lambda)["_provided_worker_env"] = environment
    vars(_lambda)["_execute_function_warm"] = execute
    vars(_lambda)["_provided_runtime_code_dir"] = _add_bootstrap(_lambda._provided_runtime_code_dir)


def interpreter() -> list[str]:
    """Return the Python of the functions: MiniStack's, or the one ``EMBEDDED_PYTHON`` names.

    The latter gets none of its own packages: ``PYTHONPATH`` has the runtime client.
    """
    chosen = os.environ.get("EMBEDDED_PYTHON")
    return [chosen, "-S", "-s"] if chosen else [sys.executable]


def _is_python(config: dict[str, Any]) -> bool:
    return str(config.get("Runtime", "python3.12")).startswith("python")


def _add_bootstrap(stock: Callable[[bytes], str]) -> Callable[[bytes], str]:
    """Return `stock`, which unpacks an asset once, with a bootstrap beside python code."""

    def unpack(code_zip: bytes) -> str:
        folder = Path(stock(code_zip))
        bootstrap = folder / "bootstrap"
        if not bootstrap.exists():
            command = [*interpreter(), "-P", str(SANDBOX), str(folder)]
            scratch = folder / f".bootstrap-{threading.get_ident()}"
            scratch.write_text(f"#!/bin/sh\nexec {shlex.join(command)}\n")
            scratch.chmod(0o755)
            scratch.replace(bootstrap)
        return str(folder)

    return unpack


def function_variables(config: dict[str, Any], port: int) -> dict[str, str]:
    """Return a function's variables: its own, Lambda's, and how to reach this AWS."""
    _account, region = _lambda._account_region_from_function_config(config)
    name = config.get("FunctionName", "")
    logging = config.get("LoggingConfig") or {}
    variables = {name: os.environ[name] for name in KEPT if name in os.environ}
    variables |= {
        "PATH": "/usr/local/bin:/usr/bin/:/bin:/opt/bin",
        "LANG": "en_US.UTF-8",
        "TZ": ":UTC",
        "PYTHONNOUSERSITE": "1",
        "EMBEDDED_TMP_MIB": str((config.get("EphemeralStorage") or {}).get("Size", TMP_MIB)),
        "AWS_EXECUTION_ENV": f"AWS_Lambda_{config.get('Runtime', 'python3.13')}",
        "AWS_LAMBDA_INITIALIZATION_TYPE": "on-demand",
        "AWS_LAMBDA_LOG_GROUP_NAME": logging.get("LogGroup") or f"/aws/lambda/{name}",
        "AWS_LAMBDA_LOG_FORMAT": logging.get("LogFormat") or "Text",
        "AWS_LAMBDA_LOG_LEVEL": logging.get("ApplicationLogLevel") or "",
        _lambda.HOST_PREFIX_ENV: "true",
        **_endpoint(),
        **_lambda._runtime_env_vars(config),
        "AWS_LAMBDA_LOG_STREAM_NAME": f"{time.strftime('%Y/%m/%d')}/[$LATEST]{_hex()}",
        "AWS_LAMBDA_FUNCTION_NAME": name,
        "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(config.get("MemorySize", 128)),
        "AWS_LAMBDA_FUNCTION_VERSION": str(config.get("Version", "$LATEST")),
        "AWS_LAMBDA_RUNTIME_API": f"127.0.0.1:{port}",
        "AWS_REGION": region,
        "AWS_DEFAULT_REGION": region,
        "_HANDLER": str(config.get("Handler", "")),
    }
    return variables | dict(_runtime.execution_credentials(config))


def _endpoint() -> dict[str, str]:
    port = os.environ.get("GATEWAY_PORT", "4566")
    if not _tls.use_ssl_enabled():
        return {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"}
    return {"AWS_ENDPOINT_URL": f"https://127.0.0.1:{port}", **_trust()}


def _trust() -> dict[str, str]:
    """Return the variables that name the certificates, whose files are written once.

    MiniStack would replace the files at every start of a function. A function that starts at that
    moment could not mount the file that it was told of, and would end.
    """
    with _trusting:
        if not _trusted:
            _tls.trust_gateway_cert(_trusted)
        return dict(_trusted)


def _hex() -> str:
    return str(_responses.new_uuid()).replace("-", "")
