"""An embedded AWS with the strict rules; skipped where MiniStack is not installed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from embedded.ministack import PYTHON, EmbeddedAws
from tests.strict.machines import Machines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture(scope="session", autouse=True)
def _installed() -> None:
    if not PYTHON.exists():
        pytest.skip("no embedded AWS: make it with `uv sync --project embedded --frozen`")


@pytest.fixture(scope="session")
def machines() -> Iterator[Machines]:
    """State machines with the limits of AWS; waits before retries take a hundredth."""
    with EmbeddedAws(variables={"SFN_WAIT_SCALE": "0.01"}) as aws:
        yield Machines(aws)


@pytest.fixture
def limited() -> Iterator[Callable[[str, float], Machines]]:
    """Machines on an embedded AWS of their own, with one limit made smaller."""
    started: list[EmbeddedAws] = []

    def start(name: str, value: float) -> Machines:
        started.append(EmbeddedAws(variables={f"EMBEDDED_{name}": str(value)}).start())
        return Machines(started[-1])

    yield start
    for aws in started:
        aws.stop()
