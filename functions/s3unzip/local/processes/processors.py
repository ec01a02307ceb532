"""The machine's processors, and how a worker's threads are placed on them.

A worker has tens of threads that wait for the interpreter's lock or for a
PUT, each for microseconds. Linux means well: it wakes each on whichever
processor is idle, before what runs there, and the worker's data follow. That
was a third of the CPU of 20,000 small members. So workers are told to be a
batch (sched(7)): nothing is interrupted for them. And where each worker may
have a processor of its own, it keeps to it while it extracts small members.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

THREADS = Path("/proc/self/task")  # proc(5): of this process, an entry each


def available_processors() -> list[int]:
    """Return the processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def has_one_thread() -> bool:
    """Say whether this process certainly has one; libraries have threads that Python cannot see."""
    return len(_threads()) == 1


def yield_to_others() -> None:
    """Let this process wake without interrupting others; its threads to come do likewise."""
    if hasattr(os, "SCHED_BATCH"):
        with contextlib.suppress(OSError):  # a sandbox may forbid it
            if os.sched_getscheduler(0) == os.SCHED_OTHER:  # else somebody chose
                os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def keep_to(processors: Collection[int]) -> None:
    """Let all threads of this process, and those to come, run on `processors` alone."""
    if hasattr(os, "sched_setaffinity"):
        for thread in _threads():
            with contextlib.suppress(OSError):  # it has ended, or the processors are gone
                os.sched_setaffinity(thread, processors)


def _threads() -> list[int]:
    try:
        return [int(entry.name) for entry in THREADS.iterdir()]
    except OSError:  # no Linux
        return []
