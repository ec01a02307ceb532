"""The synthesized stack on MiniStack; skipped where MiniStack is not installed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from embedded.deploy import Assembly, start_aws
from embedded.pipeline import DeployedPipeline
from tests.support import assemblies, processes


@pytest.fixture(scope="session")
def assembly(tmp_path_factory: pytest.TempPathFactory) -> Assembly:
    return assemblies.for_embedded_aws(tmp_path_factory, "dev")


@pytest.fixture(scope="module")
def pipeline(assembly: Assembly) -> Iterator[DeployedPipeline]:
    """The stack deployed once a module; its retries wait a fiftieth of their time."""
    with start_aws(wait_scale=0.02) as aws:
        yield DeployedPipeline.create(assembly, aws.environment)


@pytest.fixture
def operator(pipeline: DeployedPipeline, tmp_path: Path) -> processes.Program:
    program = processes.Program(tmp_path)
    program.variables |= pipeline.variables
    return program
