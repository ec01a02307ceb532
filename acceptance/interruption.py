"""Ctrl-C, also where Python drops it.

Python raises `KeyboardInterrupt` between two instructions of the main thread. If these are of the
``close`` of a file object that is just freed, the exception is lost without a word
(``iobase_finalize`` in CPython's Modules/_io/iobase.c). Answers over HTTP are such objects. So the
signal is remembered, and the set asks for it where it waits.
"""

from __future__ import annotations

import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType


class Interruption:
    """Whether Ctrl-C was pressed."""

    def __init__(self) -> None:
        self._heard = False

    @contextmanager
    def remembered(self) -> Iterator[None]:
        """Remember Ctrl-C within, and raise `KeyboardInterrupt` for it at the latest at the end.

        If it is ignored, it stays so (nohup). Use it in the main thread.
        """
        before = signal.getsignal(signal.SIGINT)
        if before is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, self._hear)
        try:
            yield
            self.check()
        finally:
            signal.signal(signal.SIGINT, before)
            self._heard = False

    def check(self) -> None:
        """Raise `KeyboardInterrupt` if Ctrl-C was pressed within `remembered`."""
        if self._heard:
            raise KeyboardInterrupt

    def _hear(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self._heard = True
        raise KeyboardInterrupt
