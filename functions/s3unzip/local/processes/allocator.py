"""Tunes the C allocator of a worker: it keeps small buffers and returns large ones to the system.

A worker allocates and frees buffers all the time, in several threads. By default, glibc returns the
end of a heap to the system as soon as it is free, then requests it again. The kernel's work for new
pages then costs as much as inflating into them. After the first large buffer, glibc also keeps
large buffers in the heaps of the threads, where they leave holes. Fixed thresholds prevent both.
"""

from __future__ import annotations

import ctypes

from s3unzip.settings import MIB

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD, malloc.h
LARGE = 4 * MIB  # smaller buffers are too frequent for a system call each
MAX_KEPT = 64 * MIB  # free at the end of a heap


def tune_allocator() -> None:
    """Set both thresholds; does nothing without glibc."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(MMAP_THRESHOLD, LARGE)
        mallopt(TRIM_THRESHOLD, MAX_KEPT)
