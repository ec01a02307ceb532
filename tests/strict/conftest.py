"""An embedded AWS with the strict rules; skipped where MiniStack is not installed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from embedded.ministack import PYTHON, EmbeddedAws
from tests.strict.machines import Machines
from tests.strict.places import Place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture(scope="session", autouse=True)
def _installed() -> None:
    if not PYTHON.exists():
        pytest.skip("no embedded AWS: make it with `uv sync --project embedded --frozen`")


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The variable that lets functions see this session's temporary folders."""
    return {"EMBEDDED_SHARED": str(tmp_path_factory.getbasetemp())}


@pytest.fixture(scope="session")
def machines(shared: dict[str, str]) -> Iterator[Machines]:
    """State machines with the limits of AWS; waits before retries take a hundredth."""
    with EmbeddedAws(variables={"SFN_WAIT_SCALE": "0.01", **shared}) as aws:
        yield Machines(aws)


@pytest.fixture
def limited(shared: dict[str, str]) -> Iterator[Callable[[str, float], Machines]]:
    """Machines on an embedded AWS of their own, with one limit made smaller."""
    started: list[EmbeddedAws] = []

    def start(name: str, value: float) -> Machines:
        variables = {f"EMBEDDED_{name}": str(value), **shared}
        started.append(EmbeddedAws(variables=variables).start())
        return Machines(started[-1])

    yield start
    for aws in started:
        aws.stop()


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    """One embedded AWS a module; a minute of AWS's waits lasts 50 ms."""
    with EmbeddedAws(variables={"LAMBDA_ASYNC_RETRY_BASE_SECONDS": "0.05"}) as aws:
        yield Place(aws)
