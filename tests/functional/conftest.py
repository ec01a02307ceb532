"""What the tests of whole commands have in common."""

from pathlib import Path

import pytest

from tests.support.memory import World
from tests.support.processes import Program


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


@pytest.fixture
def world() -> World:
    return World()
