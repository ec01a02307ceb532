"""What the tests of whole commands have in common."""

from pathlib import Path

import pytest

from tests.support.processes import Program
from tests.support.runs import World


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """Return the command line, in an empty folder."""
    return Program(tmp_path)


@pytest.fixture
def world() -> World:
    """Return empty stores in memory, and runs over them."""
    return World()
