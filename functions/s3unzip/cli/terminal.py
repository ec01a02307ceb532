"""The process and its terminal: standard streams, command output and signals.

A standard stream may be closed when the process starts. The next file or connection to be opened
would get the descriptor of the stream and receive its text, so `repair_streams` reopens closed
streams. A message that cannot be written does not stop a run. If output cannot be written, the
command exits with `OUTPUT_LOST`.

SIGTERM and SIGHUP stop a command as Ctrl-C does: a run records its finished work first. Python
raises `KeyboardInterrupt` between two instructions of the main thread. This exception can be lost.
While closing a freed file object, such as an HTTP response, Python discards the exception silently
(``iobase_finalize`` in CPython's Modules/_io/iobase.c). In other destructors, Python prints and
discards the exception. `Stopping` therefore raises the exception again until it is handled; the
last attempt is made when the command ends. `Stopping` also keeps Python from printing the discarded
exception.
"""

from __future__ import annotations

import io
import os
import signal
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

from s3unzip.printable import printable, printable_json, printable_lines

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from types import FrameType

    from _typeshed import ReadableBuffer

INPUT, OUTPUT, ERROR_OUTPUT = range(3)
OUTPUT_LOST = 74  # EX_IOERR in sysexits.h
STOPPING = (signal.SIGTERM, signal.SIGHUP)  # Python itself handles only SIGINT
AGAIN_SECONDS = 0.5  # interval between attempts to raise an unhandled exception


class OutputLostError(OSError):
    """Writing to standard output failed."""


class _Stream(io.FileIO):
    """A standard stream. Failed writes to stderr are ignored; others raise `OutputLostError`."""

    def write(self, data: ReadableBuffer, /) -> int | None:  # type: ignore[override]  # as FileIO
        try:
            return super().write(data)
        except OSError as error:
            if self.fileno() == ERROR_OUTPUT:
                return memoryview(data).nbytes  # as if the data had been written
            if isinstance(error, BrokenPipeError):  # the reader has exited, as `head` does
                raise
            raise OutputLostError(error.errno, error.strerror) from error


class _SafeText(io.TextIOWrapper):
    """A standard stream that escapes control characters.

    Output can contain text from an archive, a key or a server, and control characters in such text
    could manipulate the terminal.
    """

    def __init__(self, raw: _Stream, encoding: str, errors: str, *, by_line: bool) -> None:
        # Unless `by_line` is set, up to 1 MiB of output is written only after the command has
        # returned its exit code. A reader that exits early cannot make such a command fail.
        super().__init__(io.BufferedWriter(raw, 1024**2), encoding, errors, line_buffering=by_line)
        # The progress display writes to this stream, because it moves the cursor with control
        # characters. The display itself escapes text from archives and servers.
        self.unescaped = io.TextIOWrapper(self.buffer, encoding, errors, line_buffering=by_line)

    def write(self, text: str, /) -> int:
        return super().write(printable_lines(text))


def unescaped_errors() -> TextIO:
    """Return standard error without escapes, for text that moves the cursor."""
    if isinstance(sys.stderr, _SafeText):
        return sys.stderr.unescaped
    return sys.stderr


def repair_streams() -> None:
    """Reopen closed standard streams; make stdout and stderr escape control characters."""
    for number in (INPUT, OUTPUT, ERROR_OUTPUT):
        try:
            os.fstat(number)
        except OSError:
            # The new descriptor is `number`, the lowest free one. Standard output is opened for
            # reading only, so that writing fails and the command reports the failure.
            os.open(os.devnull, os.O_RDONLY if number == OUTPUT else os.O_RDWR)
    if sys.stdin is None:
        sys.stdin = open(INPUT, closefd=False)  # noqa: SIM115 - stays open until the process ends
    sys.stdout = _replace_stream(OUTPUT, sys.stdout)
    sys.stderr = _replace_stream(ERROR_OUTPUT, sys.stderr, by_line=True)


def _replace_stream(
    descriptor: int, replaced: TextIO | None, *, by_line: bool = False
) -> _SafeText:
    """Return a stream that writes to `descriptor`, with the encoding of the `replaced` stream.

    Characters that the encoding cannot represent are escaped. The buffer is written after each line
    if `by_line` is set, or if the descriptor is a terminal.
    """
    raw = _Stream(descriptor, "wb", closefd=False)
    return _SafeText(
        raw,
        getattr(replaced, "encoding", None) or "utf-8",
        "backslashreplace",
        by_line=by_line or raw.isatty(),
    )


def finish_output() -> None:
    """Write buffered output; raise `OutputLostError` if the output file cannot store it.

    File systems such as NFS and FUSE report some failed writes only when a descriptor is closed.
    Closing a copy of the descriptor is enough, and leaves standard output open for the caller.
    """
    sys.stdout.flush()
    try:
        os.close(os.dup(OUTPUT))
    except OSError as error:
        raise OutputLostError(error.errno, error.strerror) from error


def drop_output() -> None:
    """Discard what is buffered for standard output, and all later output."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, sys.stdout.fileno())
    os.close(nothing)


def confirm(question: str) -> bool:
    """Ask a question at the terminal; return whether the answer is y or yes."""
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def warn(sentence: str) -> None:
    """Print a warning as one line on standard error."""
    sys.stderr.write(f"s3unzip: warning: {printable(sentence)}\n")


def text_stream(*, json: bool) -> TextIO:
    """Return the stream for text: standard output, unless JSON is printed there."""
    return sys.stderr if json else sys.stdout


def print_json(value: object) -> None:
    """Print a value as one line of JSON on standard output."""
    from s3unzip.model import encode

    sys.stdout.write(printable_json(encode(value).decode()) + "\n")


def write_table(rows: Sequence[Sequence[str]], out: TextIO, right: Collection[str] = ()) -> None:
    """Write rows with aligned columns; the first row contains the titles.

    Columns whose titles are in `right` are right-aligned.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (
            cell.rjust(width) if title in right else cell.ljust(width)
            for cell, width, title in zip(row, widths, rows[0], strict=True)
        )
        out.write("  ".join(cells).rstrip() + "\n")


class Stopping:
    """Stops this program after a signal, and records which signal it was."""

    def __init__(self) -> None:
        self._number: int = signal.SIGINT
        self._handlers: dict[int, Any] = {}  # the replaced handlers, by signal
        self._replaced_timer = (0.0, 0.0)  # seconds left, and interval

    @property
    def exit_code(self) -> int:
        """128 plus the signal number, as in shells: 130, 143 or 129."""
        return 128 + self._number

    @contextmanager
    def like_ctrl_c(self) -> Iterator[None]:
        """Raise `KeyboardInterrupt` inside the block for SIGINT and the `STOPPING` signals.

        If Python discards the exception, a timer raises it again until a block handles it. Ignored
        signals stay ignored, as nohup requires. Only the main thread can set handlers.
        """
        replaced_hook = sys.unraisablehook

        def report_others(discarded: sys.UnraisableHookArgs) -> None:
            if discarded.exc_type is not KeyboardInterrupt:  # `KeyboardInterrupt` is raised again
                replaced_hook(discarded)

        sys.unraisablehook = report_others
        for number in (signal.SIGINT, *STOPPING):
            if signal.getsignal(number) in {signal.SIG_DFL, signal.default_int_handler}:
                self._handlers[number] = signal.signal(number, self._stop)
        try:
            yield
        finally:
            was_own_timer_running = False
            if signal.SIGALRM in self._handlers:  # a signal has called `_stop`
                # Keep the hook: Python may discard the exception again when the program ends and
                # its objects are freed.
                _, interval = signal.setitimer(signal.ITIMER_REAL, *self._replaced_timer)
                # The timer of `_stop` runs until a block handles the exception.
                was_own_timer_running = interval > 0
            else:
                sys.unraisablehook = replaced_hook
            for signal_number, handler in self._handlers.items():
                signal.signal(signal_number, handler)
            self._handlers.clear()
            if was_own_timer_running and not _is_being_handled():  # Python discarded the exception
                raise KeyboardInterrupt

    def _stop(self, number: int, _frame: FrameType | None) -> None:
        """Raise `KeyboardInterrupt`; start a timer that raises it again if Python discards it."""
        self._number = number
        if signal.SIGALRM not in self._handlers:  # the first signal
            self._replaced_timer = signal.getitimer(signal.ITIMER_REAL)
            self._handlers[signal.SIGALRM] = signal.signal(signal.SIGALRM, self._raise_again)
        signal.setitimer(signal.ITIMER_REAL, AGAIN_SECONDS, AGAIN_SECONDS)
        raise KeyboardInterrupt

    def _raise_again(self, _number: int, _frame: FrameType | None) -> None:
        if not _is_being_handled():
            # If Python discards this exception, the timer calls this method again.
            raise KeyboardInterrupt
        signal.setitimer(signal.ITIMER_REAL, 0.0)


def _is_being_handled() -> bool:
    """Return whether an ``except`` or ``finally`` block for `KeyboardInterrupt` is running."""
    error = sys.exception()
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None
