"""Processes that end with the one that started them, whatever they wait for.

A worker that waits for a slow server does not look at its connection. On Linux
the kernel kills it when the process that forked it ends (PR_SET_PDEATHSIG,
prctl(2)). Elsewhere a thread looks at the parent's process id.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time

PR_SET_PDEATHSIG = 1  # linux/prctl.h
LOOK_SECONDS = 0.25


def die_with_parent(parent: int) -> None:
    """Let this process be killed as soon as `parent`, which forked it, has ended.

    The kernel means the thread that forked, not the process: call it where
    that thread lives as long as its process.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    else:
        threading.Thread(target=_watch, args=(parent,), daemon=True).start()
    if os.getppid() != parent:  # it ended before the kernel was told
        os._exit(1)


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(LOOK_SECONDS)
    os._exit(1)
