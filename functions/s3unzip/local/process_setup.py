"""Set up a process of this machine: its logging, its threads on the processors, its allocator.

A worker has tens of threads that wait for the interpreter's lock or for a PUT, each for
microseconds. Linux moves each woken thread to an idle processor, where it preempts the running
thread and loses its cache. This took a third of the CPU time for 20,000 small members. So workers
use `SCHED_BATCH` (sched(7)): a woken thread preempts nothing.

A worker allocates and frees buffers all the time, in several threads. By default, glibc returns the
end of a heap to the system as soon as it is free, then requests it again. The kernel's work for new
pages then costs as much as inflating into them. After the first large buffer, glibc also keeps
large buffers in the heaps of the threads, where they leave holes. Fixed thresholds prevent both.
"""

import contextlib
import logging
import os
import sys

from s3unzip.printable import printable

LOG_LEVEL = "S3UNZIP_LOG_LEVEL"  # worker processes inherit it
TRIM_THRESHOLD = -1  # M_TRIM_THRESHOLD of malloc.h
MMAP_THRESHOLD = -3  # M_MMAP_THRESHOLD
LARGE = 4 * 1024**2  # smaller buffers are too frequent for a system call each
MAX_KEPT = 64 * 1024**2  # free bytes at the end of a heap


class _PrintableFormatter(logging.Formatter):
    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the base class's
        return printable(super().formatMessage(record))  # messages quote servers


def start_logging() -> None:
    """Log to standard error at the level in `LOG_LEVEL`; log nothing without this variable."""
    level = os.environ.get(LOG_LEVEL)
    if not level:
        return
    logger = logging.getLogger("s3unzip")
    if not logger.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(
            _PrintableFormatter("%(asctime)s %(levelname)-7s %(process)d %(message)s")
        )
        logger.addHandler(handler)
    logger.setLevel(level.upper())


def available_processors() -> list[int]:
    """Return the processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def yield_to_others() -> None:
    """Use `SCHED_BATCH` for this process and its future threads: a woken one preempts nothing."""
    if hasattr(os, "SCHED_BATCH"):
        with contextlib.suppress(OSError):  # a sandbox may forbid it
            if os.sched_getscheduler(0) == os.SCHED_OTHER:  # otherwise the user chose a policy
                os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def tune_allocator() -> None:
    """Let glibc keep freed small buffers, and return large ones to the system.

    Does nothing without glibc.
    """
    import ctypes  # noqa: PLC0415 - only workers need it

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(MMAP_THRESHOLD, LARGE)
        mallopt(TRIM_THRESHOLD, MAX_KEPT)
