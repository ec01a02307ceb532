"""A real S3 server of our own for one test or bench: VersityGW on a folder, on 127.0.0.1."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.patience import HANG_SECONDS

if TYPE_CHECKING:
    from typing import Self

HOST = "127.0.0.1"
ACCESS = "AKIDFAULTS"
SECRET = "not-a-secret"
REGION = "us-east-1"


def find_versity() -> str | None:
    """Return the path of the ``versitygw`` program, None if it is not installed."""
    gopath = Path(os.environ.get("GOPATH", Path.home() / "go")) / "bin"
    return shutil.which("versitygw", path=f"{os.environ.get('PATH', '')}{os.pathsep}{gopath}")


class Versity:
    """One server; a context manager. Its objects are gone when it stops."""

    def __init__(self, folder: Path | None = None) -> None:
        memory = Path("/dev/shm")
        self._parent = folder or (memory if memory.is_dir() else None)
        self.port = 0

    @property
    def endpoint(self) -> str:
        """The URL, past any proxy."""
        return f"http://{HOST}:{self.port}"

    @property
    def objects(self) -> Path:
        """The folder whose folders are the buckets."""
        return Path(self._folder) / "objects"

    def __enter__(self) -> Self:
        program = find_versity()
        if program is None:
            raise RuntimeError("versitygw is not on PATH: see docs/reliability.md")
        self._folder = tempfile.mkdtemp(prefix="s3unzip-faults-", dir=self._parent)
        self.objects.mkdir()
        with socket.create_server((HOST, 0)) as probe:
            self.port = probe.getsockname()[1]
        self._process = subprocess.Popen(
            [
                *(program, "--port", f"{HOST}:{self.port}", "--access", ACCESS),
                *("--secret", SECRET, "--region", REGION, "--quiet", "--keep-alive"),
                *("posix", str(self.objects)),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=self._folder,
        )
        self._await()
        return self

    def __exit__(self, *exception: object) -> None:
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _await(self) -> None:
        deadline = time.monotonic() + HANG_SECONDS
        while time.monotonic() < deadline:
            try:
                socket.create_connection((HOST, self.port), 1).close()
            except OSError:
                time.sleep(0.02)
            else:
                return
        raise RuntimeError(f"versitygw did not listen within {HANG_SECONDS:.0f} s")
