"""A tool that is missing is a skip for a visitor, and a failure for a hosted run."""

import os
import subprocess
import sys
from pathlib import Path

from tests.conftest import REQUIRE_TOOLS
from tests.docs.commands import ROOT

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
