"""The C allocator of a worker: its small buffers are kept, its large ones given back.

A worker makes and frees buffers all the time, in several threads. glibc gives
the end of a heap back to the system as soon as it is free, and asks for it
again: the kernel's work for new pages is then as much as that of inflating
into them. And it learns from the first large buffer to keep such ones in its
heaps, one a thread, where they leave holes. Fixed thresholds forbid both.
"""

from __future__ import annotations

import ctypes

from s3unzip.settings import MIB

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD, malloc.h
LARGE = 4 * MIB  # smaller ones are made too often to ask the system for each
MAX_KEPT = 64 * MIB  # free at the end of a heap


def tune_allocator() -> None:
    """Set both thresholds; nothing happens without glibc."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(MMAP_THRESHOLD, LARGE)
        mallopt(TRIM_THRESHOLD, MAX_KEPT)
