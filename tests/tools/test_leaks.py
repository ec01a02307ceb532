"""The suite itself: what a test leaves behind is named, a missing tool can be a failure."""

import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import REQUIRE_TOOLS
from tests.docs.commands import ROOT
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


SUITE = """
import pytest

def test_server():
    pytest.skip("VersityGW is not installed: go install ...")

def test_other():
    pytest.skip("a folder does not copy")
"""


def test_a_missing_tool_fails_where_tools_are_required(tmp_path: Path) -> None:
    """Only the skip because of a missing tool becomes a failure."""
    (tmp_path / "conftest.py").write_text("from tests.conftest import *\n")
    (tmp_path / "test_suite.py").write_text(SUITE)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), REQUIRE_TOOLS: "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout
    assert "1 failed, 1 skipped" in done.stdout
