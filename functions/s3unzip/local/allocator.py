"""The C allocator of a worker: its large buffers are kept, and used again.

A worker makes and frees buffers of many MiB all the time: ranges read, parts
sent. Left alone, glibc gives some of them back to the system and asks for them
again, and the kernel's work for new pages is then as much as that of inflating
into them. How much is kept is bounded by what was in use at once, which
settings bound.
"""

from __future__ import annotations

import ctypes

from s3unzip.settings import MIB

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD, malloc.h
LARGEST_KEPT = 32 * MIB  # the most that glibc allows
MOST_KEPT = 256 * MIB


def keep_buffers() -> None:
    """Have the allocator keep what is freed; nothing happens without glibc."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(MMAP_THRESHOLD, LARGEST_KEPT)
        mallopt(TRIM_THRESHOLD, MOST_KEPT)
