"""Ctrl-C ends the set wherever it comes."""

from __future__ import annotations

import io
import signal

import pytest

from acceptance.interruption import Interruption


class Answer(io.RawIOBase):
    """A file object during whose last moment somebody presses Ctrl-C."""

    def close(self) -> None:
        """Close it."""
        if not self.closed:
            super().close()
            signal.raise_signal(signal.SIGINT)


def lose_one(reached: list[str]) -> None:
    """Let Python free an answer, which drops the exception."""
    Answer()
    reached.append("the line after it")


def test_a_lost_one_is_heard_where_the_set_waits() -> None:
    """Python drops the exception; the next look raises it, and it is over after that."""
    interruption, reached = Interruption(), list[str]()
    before = signal.getsignal(signal.SIGINT)

    def act() -> None:
        with interruption.remembered():
            lose_one(reached)
            interruption.check()
            reached.append("the end")

    with pytest.raises(KeyboardInterrupt):
        act()
    assert reached == ["the line after it"]
    assert signal.getsignal(signal.SIGINT) is before
    interruption.check()


def test_a_lost_one_is_heard_at_the_end() -> None:
    """A set that does not wait any more is interrupted too: it exits with 130."""
    reached = list[str]()
    with pytest.raises(KeyboardInterrupt), Interruption().remembered():
        lose_one(reached)
    assert reached == ["the line after it"]


def test_one_that_is_ignored_stays_so() -> None:
    """As with nohup."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Interruption().remembered():
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
