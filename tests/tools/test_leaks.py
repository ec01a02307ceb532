"""What a test leaves behind is found, named and set back."""

import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import leaks


def set_variable(folder: Path) -> None:
    """Set a variable for all tests that follow."""
    os.environ["S3UNZIP_LEFT"] = str(folder)


def drop_variable(folder: Path) -> None:
    """Delete a variable for all tests that follow."""
    del folder, os.environ["PATH"]


def change_folder(folder: Path) -> None:
    """Work somewhere else from now on."""
    os.chdir(folder)


def ignore_signal(folder: Path) -> None:
    """Ignore a signal from now on."""
    del folder
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)


def stop_clock(folder: Path) -> None:
    """Wait for nothing from now on."""
    del folder
    vars(time)["sleep"] = print


def extend_path(folder: Path) -> None:
    """Let modules be imported from another folder."""
    sys.path.append(str(folder))


@pytest.mark.parametrize(
    ("leave", "words"),
    [
        (set_variable, "the variable S3UNZIP_LEFT has changed"),
        (drop_variable, "the variable PATH has changed"),
        (change_folder, "the working folder is"),
        (ignore_signal, "SIGUSR1 has another handler"),
        (stop_clock, "time.sleep is"),
        (extend_path, "sys.path has changed"),
    ],
)
def test_what_is_left_is_named_and_set_back(
    leave: Callable[[Path], None], words: str, tmp_path: Path
) -> None:
    """One sentence names the thing, and afterwards the process is as before."""
    before = leaks.take_state()
    leave(tmp_path)
    (sentence,) = leaks.restore(before)
    assert sentence.startswith(words)
    assert leaks.take_state() == before
    assert leaks.restore(before) == []


def test_the_products_logger_is_set_back() -> None:
    """Level, handlers, filters and flags of the product's logger are those of before."""
    logger = logging.getLogger("s3unzip")
    before = (logger.level, [*logger.handlers], [*logger.filters], logger.propagate)
    kept = leaks.Logger()
    logger.setLevel(logging.CRITICAL)
    logger.addHandler(logging.NullHandler())
    logger.addFilter(logging.Filter("x"))
    logger.propagate = not logger.propagate
    kept.restore()
    assert (logger.level, logger.handlers, logger.filters, logger.propagate) == before
