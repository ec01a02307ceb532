"""An environment in moto's account, and what each check says of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from s3unzip.operate.doctor.deployment import Deployment

if TYPE_CHECKING:
    from collections.abc import Callable

    from s3unzip.operate.runs import DeployedRuns
    from tests.unit.handlers.pipeline import Functions


@pytest.fixture
def deployment(functions: Functions, open_runs: Callable[[], DeployedRuns]) -> Deployment:
    """The environment dev; tests add resources to it, or change outputs and variables."""
    del functions  # deployed
    return Deployment(open_runs())
