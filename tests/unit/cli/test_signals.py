"""Signals that end a command, also where Python drops their exception."""

import io
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from s3unzip.cli.terminal import Stopping
from tests.support.processes import run_command
from tests.support.servers import looks

ENDS = [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
NUMBERS = [*(number for number, _ in ENDS), signal.SIGALRM]


class Answer(io.RawIOBase):
    """A file object during whose last moment a signal comes."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self._number = number

    def close(self) -> None:
        if not self.closed:
            super().close()
            signal.raise_signal(self._number)


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Each test leaves handlers and timer as they were."""
    before = [signal.getsignal(number) for number in NUMBERS]
    running = signal.getitimer(signal.ITIMER_REAL)[0] > 0  # pytest's own time limit
    yield
    assert [signal.getsignal(number) for number in NUMBERS] == before
    assert (signal.getitimer(signal.ITIMER_REAL)[0] > 0) is running


@pytest.mark.parametrize(("number", "code"), ENDS)
def test_a_lost_exception_is_raised_again(number: int, code: int) -> None:
    """Python drops it while it frees the answer; a command that waits is interrupted."""
    stopping, reached = Stopping(), list[str]()

    def wait() -> None:
        with stopping.like_ctrl_c():
            Answer(number)
            reached.append("the line after it")
            assert not any(False for _ in looks())

    with pytest.raises(KeyboardInterrupt):
        wait()
    assert (reached, stopping.exit_code) == (["the line after it"], code)


@pytest.mark.parametrize("number", ["1", "no number"])
def test_a_signal_that_is_lost_until_the_end_ends_the_command(number: str) -> None:
    """A command that ends before the exception is raised again did not end by itself."""

    def end() -> None:
        with Stopping().like_ctrl_c():
            Answer(signal.SIGINT)
            int(number)  # another error may be on its way

    with pytest.raises(KeyboardInterrupt):
        end()


def _wait_for_the_timer() -> bool:
    return any(not signal.getitimer(signal.ITIMER_REAL)[1] for _ in looks())


@pytest.mark.parametrize("number", ["1", "no number"])
def test_a_handled_signal_is_not_raised_again(number: str) -> None:
    """What a command puts on record after Ctrl-C is not interrupted, also after another error."""
    waited = False
    with Stopping().like_ctrl_c():
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            try:
                int(number)
                waited = _wait_for_the_timer()
            except ValueError:
                waited = _wait_for_the_timer()
    assert waited


def record_finally(waited: list[bool]) -> None:
    """Do something in any case, while the exception is on its way to its handler."""
    try:
        signal.raise_signal(signal.SIGINT)
    finally:
        waited.append(_wait_for_the_timer())


def record_and_stop(waited: list[bool]) -> None:
    """Do something when the first signal came, and hear a second one."""
    try:
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt:
        waited.append(True)
        signal.raise_signal(signal.SIGINT)
        waited.append(False)


@pytest.mark.parametrize("record", [record_finally, record_and_stop])
def test_only_a_second_signal_interrupts_the_clean_up(record: Callable[[list[bool]], None]) -> None:
    """What is done in any case ends; a user who presses Ctrl-C again does not want to wait."""
    waited = list[bool]()
    with pytest.raises(KeyboardInterrupt), Stopping().like_ctrl_c():
        record(waited)
    assert waited == [True]


def test_an_ignored_signal_stays_ignored() -> None:
    """As with nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Stopping().like_ctrl_c():
            signal.raise_signal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("module", ["typing", "click", "msgspec"])
def test_ctrl_c_while_a_command_is_imported(module: str, tmp_path: Path) -> None:
    """One line and the exit code, from the first import that takes time."""
    (tmp_path / f"{module}.py").write_text("raise KeyboardInterrupt")
    done = run_command(["ls", "a.zip"], tmp_path, os.environ)
    assert (done.returncode, done.stderr) == (130, "s3unzip: stopped\n")
