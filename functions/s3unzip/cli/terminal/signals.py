"""SIGTERM and SIGHUP end a command as Ctrl-C does: what is done is put on record first."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

STOPPING = (signal.SIGTERM, signal.SIGHUP)  # besides SIGINT, which Python itself handles


class Stopping:
    """Which signal stopped this program."""

    def __init__(self) -> None:
        self._number: int = signal.SIGINT

    @property
    def heard(self) -> bool:
        """Whether one of `STOPPING` came."""
        return self._number in STOPPING

    @property
    def exit_code(self) -> int:
        """128 and the signal's number, as shells have it: 130, 143 or 129."""
        return 128 + self._number

    @contextmanager
    def like_ctrl_c(self) -> Iterator[None]:
        """Raise `KeyboardInterrupt` for them within; a signal that is ignored stays so (nohup)."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {
            number: signal.signal(number, self._stop)
            for number in STOPPING
            if signal.getsignal(number) is signal.SIG_DFL
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        del frame
        self._number = number
        raise KeyboardInterrupt
