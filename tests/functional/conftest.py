"""What the tests of whole commands have in common."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import memory, memory_server, processes


@pytest.fixture
def program(tmp_path: Path) -> processes.Program:
    return processes.Program(tmp_path)


@pytest.fixture
def world() -> memory.World:
    return memory.World()


@pytest.fixture
def s3() -> Iterator[memory_server.MemoryS3]:
    with memory_server.MemoryS3("from", "out") as s3:
        yield s3
