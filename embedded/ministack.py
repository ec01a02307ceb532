"""MiniStack as a child process on 127.0.0.1: an AWS for the demo and the tests.

MiniStack pins botocore, so it has its own environment (``uv sync --project embedded --frozen``) and
is never imported. This module starts, resets and stops it; it does not know s3unzip.
"""

import contextlib
import http.client
import os
import random
import signal
import socket
import ssl
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Self

HOME = Path(__file__).resolve().parent
PYTHON = HOME / ".venv" / "bin" / "python"
REGION = "us-east-1"
START_SECONDS = 300.0
HOST = "127.0.0.1"
# Below those that systems give to whoever asks for any (Linux: 32768 and up), so that no such
# socket takes it before the server does.
PORTS = range(10_240, 32_768)
PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "SYSTEMROOT")


def free_port() -> int:
    """Return a port of this machine that was free a moment ago."""
    while True:
        port = random.choice(PORTS)  # noqa: S311 - no secret
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((HOST, port))
            return port


class EmbeddedAwsError(RuntimeError):
    """MiniStack is not installed, or did not start; the message ends with its last output."""


class EmbeddedAws:
    """One MiniStack; a context manager.

    Its objects are in its memory. With `auth` it checks signatures, function roles and bucket
    policies, over TLS, as MiniStack does with ``AUTH`` and ``USE_SSL``; without `auth` it accepts
    all credentials. The rules of `embedded.strict`, which AWS documents and MiniStack does not
    enforce, are installed unless the variable EMBEDDED_STRICT is 0.
    """

    def __init__(
        self,
        *,
        port: int = 0,
        auth: bool = False,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self._wanted_port = port
        self._auth = auth
        self._variables = dict(variables or {})
        self._port = port
        self._process: subprocess.Popen[bytes] | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    @property
    def endpoint(self) -> str:
        """The URL of every service, ``http://127.0.0.1:port``."""
        return f"{'https' if self._auth else 'http'}://{HOST}:{self._port}"

    @property
    def log(self) -> Path:
        """The file with the output of MiniStack and its functions; deleted by `stop`."""
        return self._home / "ministack.log"

    @property
    def environment(self) -> dict[str, str]:
        """The variables that make a boto3 client or a CLI talk to it."""
        variables = {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": REGION,
            "AWS_REGION": REGION,
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        if self._auth:
            variables |= dict.fromkeys(("AWS_CA_BUNDLE", "SSL_CERT_FILE"), str(self._certificate))
        return variables

    def start(self) -> Self:
        """Start the child and wait until it answers."""
        if not PYTHON.exists():
            raise EmbeddedAwsError(
                f"no {PYTHON}: make it with `uv sync --project {HOME.name} --frozen`"
            )
        # A server that listens there already would answer in place of the child.
        with contextlib.suppress(OSError), socket.create_connection((HOST, self._wanted_port)):
            raise EmbeddedAwsError(
                f"port {self._wanted_port} of {HOST} is taken by another server; choose another one"
            )
        # Another process may take a free port before the child does.
        for attempt in range(3):
            self._launch()
            try:
                self._await_health()
            except EmbeddedAwsError:
                self.stop()
                if self._wanted_port or attempt == 2:
                    raise
            else:
                return self
        raise AssertionError("unreachable")

    def stop(self) -> None:
        """End the child, its workers and its files."""
        if self._process is not None:
            if self._process.stdin is not None:
                self._process.stdin.close()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def reset(self) -> None:
        status = self._ask("POST", "/_ministack/reset")
        if status != 200:
            raise EmbeddedAwsError(f"reset was answered with {status}\n{self._last_words()}")

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exception: object) -> None:
        self.stop()

    @property
    def _home(self) -> Path:
        if self._folder is None:
            raise EmbeddedAwsError("MiniStack was not started")
        return Path(self._folder.name)

    @property
    def _certificate(self) -> Path:
        # MiniStack makes and signs it itself.
        return self._home / "ministack-tls" / "server.crt"

    def _launch(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="s3unzip-aws-")
        self._port = self._wanted_port or free_port()
        variables = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        variables |= {
            "BIND_HOST": HOST,  # MiniStack's own default is every interface
            "GATEWAY_PORT": str(self._port),
            "TMPDIR": self._folder.name,
            "AWS_DEFAULT_REGION": REGION,
            "LOG_LEVEL": "WARNING",
            "EMBEDDED_STRICT": os.environ.get("EMBEDDED_STRICT", "1"),
        }
        if self._auth:
            variables |= {"AUTH": "true", "USE_SSL": "1"}
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603 - fixed arguments
                [str(PYTHON), "-I", str(HOME / "child.py")],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=variables | self._variables,
                cwd=self._folder.name,
                start_new_session=True,
            )

    def _await_health(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if self._process is None or self._process.poll() is not None:
                raise EmbeddedAwsError(f"MiniStack ended at its start\n{self._last_words()}")
            try:
                if self._ask("GET", "/_ministack/health") == 200:
                    return
            except OSError:
                time.sleep(0.02)
        raise EmbeddedAwsError(f"no answer in {START_SECONDS:.0f} s\n{self._last_words()}")

    def _ask(self, method: str, path: str) -> int:
        connection = http.client.HTTPConnection(HOST, self._port, timeout=START_SECONDS)
        if self._auth:
            connection = http.client.HTTPSConnection(
                HOST,
                self._port,
                timeout=START_SECONDS,
                context=ssl.create_default_context(cafile=self._certificate),
            )
        with contextlib.closing(connection):
            connection.request(method, path)
            return connection.getresponse().status

    def _last_words(self) -> str:
        return self.log.read_text(errors="replace")[-2_000:]
