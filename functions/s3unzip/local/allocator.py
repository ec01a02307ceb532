"""The C allocator of a worker: large buffers go back to the system when they are freed.

A worker makes and frees buffers of many MiB in several threads: ranges read,
parts sent. glibc learns from the first of them to keep such buffers in its
heaps, one a thread, where they leave holes; a worker then holds nearly twice
what it uses. A fixed threshold forbids it to learn.
"""

from __future__ import annotations

import ctypes

from s3unzip.settings import MIB

MMAP_THRESHOLD = -3  # M_MMAP_THRESHOLD, malloc.h
LARGE = 4 * MIB  # smaller ones are made too often to ask the system for each


def return_large_buffers() -> None:
    """Have the allocator hold no large free buffers; nothing happens without glibc."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(MMAP_THRESHOLD, LARGE)
