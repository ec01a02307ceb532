"""The pool that does jobs in this process, as a worker does those of a small archive."""

from __future__ import annotations

from s3unzip.local.processes.serial import SerialPool

__all__ = ["SerialPool"]
