"""What a test leaves behind is found and named."""

import logging
import os
import signal
import time
from pathlib import Path

import pytest

from tests.support.leaks import find_left, product_logger_kept, take_state


def test_changes_that_a_test_leaves_are_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Variables, working folder, path of imports, clocks and the handlers of signals."""
    before = take_state()
    monkeypatch.setenv("S3UNZIP_LEFT", "x")
    monkeypatch.delenv("PATH")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(time, "sleep", os.nice)
    handler = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    found = find_left(before)
    signal.signal(signal.SIGUSR1, handler)
    monkeypatch.undo()
    assert found == [
        f"handler of signal {signal.SIGUSR1:d}",
        "sys.path",
        "time.sleep",
        "variable PATH",
        "variable S3UNZIP_LEFT",
        "working folder",
    ]
    assert find_left(before) == []


def test_the_products_logger_is_set_back() -> None:
    """Its level and its handlers are those of before."""
    logger = logging.getLogger("s3unzip")
    before = logger.level, [*logger.handlers]
    with product_logger_kept():
        logger.setLevel(logging.CRITICAL)
        logger.addHandler(logging.NullHandler())
    assert (logger.level, logger.handlers) == before
