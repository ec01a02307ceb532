"""One synthesis of an environment a session: without an account, docker or a Node of the system."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from infra.application import Application, build
from infra.environment import Environment, load_environment
from tests.infra.templates import Synthesized
from tests.sharing import make_once


@pytest.fixture(scope="session")
def asset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stand-in of the Lambda asset: its content is no matter of the template."""
    folder = tmp_path_factory.mktemp("asset")
    (folder / "s3unzip.txt").write_text("the package")
    return folder


@pytest.fixture(scope="session")
def synthesize(
    asset: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[Environment], Synthesized]:
    """Synthesize an environment, cdk-nag included; CDK's own linter has a test of its own.

    Equal settings are synthesized once, in whichever process of the session asks first.
    """
    from aws_cdk import aws_lambda as lambda_  # noqa: PLC0415 - after `infra`: it names the Node

    def run(environment: Environment) -> Synthesized:
        settings = hashlib.sha256(environment.model_dump_json().encode()).hexdigest()[:16]
        folder = make_once(
            tmp_path_factory,
            f"synthesis-{settings}",
            lambda made: build(
                Application(made, linter=False), environment, lambda_.Code.from_asset(str(asset))
            ),
        )
        (path,) = folder.glob("*.template.json")
        template: dict[str, Any] = json.loads(path.read_text())
        return Synthesized(environment, path, template)

    return run


@pytest.fixture(scope="session")
def dev(synthesize: Callable[[Environment], Synthesized]) -> Synthesized:
    """The template of the environment dev."""
    return synthesize(load_environment("dev"))


@pytest.fixture(scope="session")
def prod(synthesize: Callable[[Environment], Synthesized]) -> Synthesized:
    """The template of the environment prod."""
    return synthesize(load_environment("prod"))
