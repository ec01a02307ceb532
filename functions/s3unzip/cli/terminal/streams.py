"""Standard streams that may be closed or full.

A closed descriptor would be given to the next file or connection that is
opened, and messages would go there. Errors that cannot be written must not
stop a run. Output that cannot be written is told, with an exit code of its own.
"""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import TextIO

    from _typeshed import ReadableBuffer

INPUT, OUTPUT, ERRORS = range(3)
OUTPUT_LOST = 74  # EX_IOERR of sysexits.h


class OutputLostError(OSError):
    """Standard output cannot be written."""


class OutputUnreadError(Exception):
    """Nobody reads standard output any more; no OSError, or Typer would exit with 1."""


class _Output(io.FileIO):
    def write(self, data: ReadableBuffer, /) -> int | None:  # type: ignore[override]  # as FileIO
        try:
            return super().write(data)
        except BrokenPipeError as error:
            raise OutputUnreadError from error
        except OSError as error:
            raise OutputLostError(error.errno, error.strerror) from error


class _Errors(io.FileIO):
    def write(self, data: ReadableBuffer, /) -> int | None:  # type: ignore[override]  # as FileIO
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes  # nobody reads it


def mend_streams() -> None:
    """Open closed standard streams on nothing, and let no failed write of errors do harm."""
    for number in (INPUT, OUTPUT, ERRORS):
        try:
            os.fstat(number)
        except OSError:
            # The lowest free number, which is this one. Output that is written is lost, and told.
            os.open(os.devnull, os.O_RDONLY if number == OUTPUT else os.O_RDWR)
    if sys.stdin is None:
        sys.stdin = open(INPUT, closefd=False)  # noqa: SIM115 - for as long as the process
    sys.stdout = _text(_Output(OUTPUT, "wb", closefd=False), sys.stdout)
    sys.stderr = _text(_Errors(ERRORS, "wb", closefd=False), sys.stderr, errors="backslashreplace")


def drop_output() -> None:
    """Let what is still to be written to standard output vanish."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, sys.stdout.fileno())
    os.close(nothing)


def _text(raw: io.FileIO, before: TextIO | None, errors: str | None = None) -> io.TextIOWrapper:
    encoding = getattr(before, "encoding", None) or "utf-8"
    strictness = errors or getattr(before, "errors", None) or "strict"
    by_line = errors is not None or raw.isatty()
    return io.TextIOWrapper(io.BufferedWriter(raw), encoding, strictness, line_buffering=by_line)
