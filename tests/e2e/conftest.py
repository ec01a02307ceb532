"""The synthesized stack on MiniStack; skipped where MiniStack is not installed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from embedded.deploy import start_aws
from embedded.pipeline import DeployedPipeline
from tests.assemblies import synthesize_once

if TYPE_CHECKING:
    from collections.abc import Iterator

    from embedded.deploy import Assembly


@pytest.fixture(scope="session")
def assembly(tmp_path_factory: pytest.TempPathFactory) -> Assembly:
    """The cloud assembly of the environment dev, as `cdk synth` writes it."""
    return synthesize_once(tmp_path_factory, "dev")


@pytest.fixture(scope="session")
def orchestrated(tmp_path_factory: pytest.TempPathFactory) -> Assembly:
    """The same without direct runs, so that the state machine does even the smallest archive."""
    return synthesize_once(tmp_path_factory, "orchestrated")


@pytest.fixture(scope="module")
def pipeline(assembly: Assembly) -> Iterator[DeployedPipeline]:
    """The stack deployed once a module; its retries wait a fiftieth of their time."""
    with start_aws(wait_scale=0.02) as aws:
        yield DeployedPipeline.create(assembly, aws.environment)
