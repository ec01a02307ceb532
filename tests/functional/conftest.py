"""What the tests of whole commands have in common."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.memory import World
from tests.support.memory_server import MemoryS3
from tests.support.processes import Program


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def s3() -> Iterator[MemoryS3]:
    with MemoryS3("from", "out") as s3:
        yield s3
