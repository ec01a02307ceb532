"""Makes a process end with its parent, even while it waits.

A worker that waits for a slow server does not read its connection. On Linux the kernel kills it
when its parent ends (PR_SET_PDEATHSIG, prctl(2)). Elsewhere a thread watches the parent's process
id.
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
    """Make the kernel kill this process as soon as `parent`, which forked it, has ended.

    For the kernel, the parent is the thread that forked, so that thread must live as long as its
    process.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    else:
        threading.Thread(target=_watch, args=(parent,), daemon=True).start()
    if os.getppid() != parent:  # the parent ended before this call
        os._exit(1)


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(LOOK_SECONDS)
    os._exit(1)
