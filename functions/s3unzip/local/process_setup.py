"""Set up a process on this machine: its logging, its thread scheduling and its memory allocator.

A worker has tens of threads that wait for the interpreter's lock or for a PUT, each for
microseconds. Linux may move a woken thread to another processor, where it preempts the running
thread and lacks its cached data. With 20,000 small members, such moves took a third of the CPU
time. Workers therefore use `SCHED_BATCH` (sched(7)), under which a woken thread does not preempt
others.

A worker constantly allocates and frees buffers in several threads. By default, glibc returns free
memory at the top of a heap to the system immediately, and soon requests the memory again. The
kernel then spends as much time on providing new pages as a worker spends on inflating data into
the pages. After the first large buffer is freed, glibc also allocates large buffers in the heaps of
the threads, where freed buffers leave holes. Fixed thresholds prevent both problems.
"""

import contextlib
import logging
import os
import sys

from s3unzip.printable import printable

LOG_LEVEL = "S3UNZIP_LOG_LEVEL"  # inherited by worker processes
TRIM_THRESHOLD = -1  # M_TRIM_THRESHOLD in malloc.h
MMAP_THRESHOLD = -3  # M_MMAP_THRESHOLD in malloc.h
LARGE = 4 * 1024**2  # in bytes; for each smaller buffer, a system call would take too long
MAX_KEPT = 64 * 1024**2  # maximum number of free bytes at the top of a heap


class _PrintableFormatter(logging.Formatter):
    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the base class's name
        return printable(super().formatMessage(record))  # messages can quote text from servers


def start_logging() -> None:
    """Log to standard error at the level in `LOG_LEVEL`; log nothing if it is not set."""
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


def count_processors() -> int:
    """Return the number of processors that this process is allowed to use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def yield_to_others() -> None:
    """Use `SCHED_BATCH`: this process and its new threads do not preempt others when they wake."""
    if hasattr(os, "SCHED_BATCH"):
        with contextlib.suppress(OSError):  # a sandbox can forbid the call
            if os.sched_getscheduler(0) == os.SCHED_OTHER:  # otherwise, keep the user's policy
                os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def tune_allocator() -> None:
    """Let glibc keep small freed buffers, and return large ones to the system.

    Does nothing if the C library is not glibc.
    """
    import ctypes  # noqa: PLC0415 - only workers need it

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(MMAP_THRESHOLD, LARGE)
        mallopt(TRIM_THRESHOLD, MAX_KEPT)
