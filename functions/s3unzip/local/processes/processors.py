"""The machine's processors, and the placement of a worker's threads.

A worker has tens of threads that wait for the interpreter's lock or for a PUT, each for
microseconds. Linux moves each woken thread to an idle processor, where it preempts the running
thread and loses its cache. This took a third of the CPU of 20,000 small members. So workers use
`SCHED_BATCH` (sched(7)): a woken thread preempts nothing. If there are enough processors, each
worker also stays on its own processor while it extracts small members.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

THREADS = Path("/proc/self/task")  # proc(5): one entry for each thread


def available_processors() -> list[int]:
    """Return the processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def has_one_thread() -> bool:
    """Return whether this process has one thread; Python does not see libraries' threads."""
    return len(_threads()) == 1


def yield_to_others() -> None:
    """Use `SCHED_BATCH` for this process and its future threads: waking does not preempt others."""
    if hasattr(os, "SCHED_BATCH"):
        with contextlib.suppress(OSError):  # a sandbox may forbid it
            if os.sched_getscheduler(0) == os.SCHED_OTHER:  # otherwise the user chose a policy
                os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def keep_to(processors: Collection[int]) -> None:
    """Run all threads of this process, and future ones, on `processors` only."""
    if hasattr(os, "sched_setaffinity"):
        for thread in _threads():
            with contextlib.suppress(
                OSError
            ):  # the thread has ended, or the processors were removed
                os.sched_setaffinity(thread, processors)


def _threads() -> list[int]:
    try:
        return [int(entry.name) for entry in THREADS.iterdir()]
    except OSError:  # not Linux
        return []
