"""The process and its terminal: standard streams that may be closed or full, and signals.

The next file or connection that is opened would get a closed descriptor, and messages would go
there. Errors that cannot be written must not stop a run. Output that cannot be written ends the
command with an exit code of its own.

SIGTERM and SIGHUP end a command as Ctrl-C does: what is done is put on record first. The exception
for a signal can be lost. Python raises `KeyboardInterrupt` between two instructions of the main
thread. While a freed file object is being closed, Python discards such an exception silently
(``iobase_finalize`` in CPython's Modules/_io/iobase.c); answers over HTTP are such objects. So the
exception is raised again until somebody handles it, at the latest when the command ends.
"""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from s3unzip.printable import printable_lines

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType
    from typing import TextIO

    from _typeshed import ReadableBuffer

INPUT, OUTPUT, ERRORS = range(3)
OUTPUT_LOST = 74  # EX_IOERR of sysexits.h
STOPPING = (signal.SIGTERM, signal.SIGHUP)  # besides SIGINT, which Python itself handles
AGAIN_SECONDS = 0.5  # until an exception that nobody handles is raised again


class OutputLostError(OSError):
    """Standard output cannot be written."""


class _Stream(io.FileIO):
    """A standard stream whose failed writes are an error of their own, or none for messages."""

    def write(self, data: ReadableBuffer, /) -> int | None:  # type: ignore[override]  # as FileIO
        try:
            return super().write(data)
        except OSError as error:
            if self.fileno() == ERRORS:
                return memoryview(data).nbytes  # nobody reads it
            if isinstance(error, BrokenPipeError):  # nobody reads it any more
                raise
            raise OutputLostError(error.errno, error.strerror) from error


class _Text(io.TextIOWrapper):
    """A standard stream on which nothing but this program's own lines acts on a terminal.

    Whatever is printed may quote an archive, a key or a server.
    """

    def __init__(self, raw: _Stream, encoding: str, errors: str, *, by_line: bool) -> None:
        super().__init__(io.BufferedWriter(raw), encoding, errors, line_buffering=by_line)
        # The same stream as it is, for what moves the cursor: the progress display.
        self.unescaped = io.TextIOWrapper(self.buffer, encoding, errors, line_buffering=by_line)

    def write(self, text: str, /) -> int:
        return super().write(printable_lines(text))


def unescaped_errors() -> TextIO:
    """Return standard error for text that is escaped already, and moves the cursor."""
    if isinstance(sys.stderr, _Text):
        return sys.stderr.unescaped
    return sys.stderr


def mend_streams() -> None:
    """Open closed standard streams on nothing, and let no failed write of errors do harm."""
    for number in (INPUT, OUTPUT, ERRORS):
        try:
            os.fstat(number)
        except OSError:
            # The lowest free number is this one. Writing output fails, and the command reports it.
            os.open(os.devnull, os.O_RDONLY if number == OUTPUT else os.O_RDWR)
    if sys.stdin is None:
        sys.stdin = open(INPUT, closefd=False)  # noqa: SIM115 - for as long as the process
    sys.stdout = _text(OUTPUT, sys.stdout)
    sys.stderr = _text(ERRORS, sys.stderr, by_line=True)


def drop_output() -> None:
    """Let what is still to be written to standard output vanish."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, sys.stdout.fileno())
    os.close(nothing)


def confirm(question: str) -> bool:
    """Ask a question at the terminal; return whether the answer is y or yes."""
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def _text(number: int, replaced: TextIO | None, *, by_line: bool = False) -> _Text:
    """Return a stream on this file descriptor, to replace another one.

    Characters that its encoding does not have become escapes.
    """
    raw = _Stream(number, "wb", closefd=False)
    encoding = getattr(replaced, "encoding", None) or "utf-8"
    return _Text(raw, encoding, "backslashreplace", by_line=by_line or raw.isatty())


class Stopping:
    """Which signal stopped this program."""

    def __init__(self) -> None:
        self._number: int = signal.SIGINT
        self._handlers: dict[int, Any] = {}  # that this program replaced, by signal
        self._timer = (0.0, 0.0)  # that was set before: seconds left, and interval

    @property
    def heard(self) -> bool:
        """Whether one of the `STOPPING` signals has arrived."""
        return self._number in STOPPING

    @property
    def exit_code(self) -> int:
        """128 and the signal's number, as shells have it: 130, 143 or 129."""
        return 128 + self._number

    @contextmanager
    def like_ctrl_c(self) -> Iterator[None]:
        """Raise `KeyboardInterrupt` inside the block for SIGINT and the `STOPPING` signals.

        An exception that Python loses is raised again.

        A signal that is ignored stays so (nohup).
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        for number in (signal.SIGINT, *STOPPING):
            if signal.getsignal(number) in {signal.SIG_DFL, signal.default_int_handler}:
                self._handlers[number] = signal.signal(number, self._stop)
        try:
            yield
        finally:
            lost = False
            if signal.SIGALRM in self._handlers:
                _, interval = signal.setitimer(signal.ITIMER_REAL, *self._timer)
                lost = interval > 0  # the timer still runs: nobody has handled the exception
            for signal_number, handler in self._handlers.items():
                signal.signal(signal_number, handler)
            self._handlers.clear()
            if lost and not _is_handled():
                raise KeyboardInterrupt

    def _stop(self, number: int, frame: FrameType | None) -> None:
        """Raise `KeyboardInterrupt`, and start the timer that raises it again if it is lost."""
        del frame
        self._number = number
        timer = signal.setitimer(signal.ITIMER_REAL, 0.0)
        if signal.SIGALRM not in self._handlers:
            self._timer = timer
            self._handlers[signal.SIGALRM] = signal.signal(signal.SIGALRM, self._repeat)
        signal.setitimer(signal.ITIMER_REAL, AGAIN_SECONDS, AGAIN_SECONDS)
        raise KeyboardInterrupt

    def _repeat(self, number: int, frame: FrameType | None) -> None:
        """Raise the exception again if nobody handles it."""
        del number, frame
        if not _is_handled():
            raise KeyboardInterrupt
        signal.setitimer(signal.ITIMER_REAL, 0.0)


def _is_handled() -> bool:
    """Return whether an ``except`` or ``finally`` now runs because of `KeyboardInterrupt`."""
    error = sys.exception()
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None
