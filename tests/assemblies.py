"""Cloud assemblies for the embedded AWS, of the environment dev or of one that is in no file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from embedded.deploy import Assembly, make_asset, synthesize
from embedded.ministack import PYTHON
from infra.application import Application, build
from tests.sharing import make_once

if TYPE_CHECKING:
    from pathlib import Path

    from infra.environment import Environment


def synthesize_once(factory: pytest.TempPathFactory, name: str, **settings: int) -> Assembly:
    """Return the assembly of dev with these settings, which has this name in the session.

    As `cdk synth` writes it: by app.py, in a process of its own, which takes seconds.
    """
    if not PYTHON.exists():
        pytest.skip("no embedded AWS: make it with `uv sync --project embedded --frozen`")
    folder = make_once(factory, name, lambda made: synthesize("dev", made, settings=settings))
    (template,) = (folder / "cdk.out").glob("*.template.json")
    return Assembly(template.parent, template.name.removesuffix(".template.json"))


def synthesize_environment(environment: Environment, folder: Path) -> Assembly:
    """Write the assembly of an environment that is in no file, with the package as its asset."""
    from aws_cdk import aws_lambda as lambda_  # noqa: PLC0415 - after `infra`: it names the Node

    code, assembly = folder / "code", folder / "cdk.out"
    make_asset(code)
    build(Application(assembly), environment, lambda_.Code.from_asset(str(code)))
    return Assembly(assembly, environment.stack.name)
