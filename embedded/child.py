"""The child's side of `embedded.ministack`: runs MiniStack, and dies with its parent.

Run as ``python -I child.py`` by the interpreter of ``embedded/.venv``. Standard
input is a pipe whose other end only the parent has: when the parent ends, in
whatever way, the pipe does, and this whole process group with it.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import threading
from importlib import import_module


def _follow_parent() -> None:
    while os.read(0, 4096):
        pass
    os.killpg(0, signal.SIGKILL)


def _hasten_checksums() -> None:
    """Replace MiniStack's CRC-64/NVME, a loop in Python, by the same sum at memory speed."""
    fast = import_module("awscrt.checksums").crc64nvme
    vars(import_module("ministack.services.s3"))["_crc64nvme"] = fast


if __name__ == "__main__":
    threading.Thread(target=_follow_parent, daemon=True).start()
    _hasten_checksums()
    sys.argv = ["ministack"]
    runpy.run_module("ministack", run_name="__main__", alter_sys=True)
