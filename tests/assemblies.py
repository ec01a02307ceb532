"""Cloud assemblies for the embedded AWS: variants of the environment dev, and others in no file.

Run as ``python -m tests.assemblies FOLDER``, this module writes all variants of dev. One process
writes them in the time of two: most of a synthesis is the start of jsii and the import of CDK.
"""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from embedded.deploy import Assembly, make_asset
from embedded.ministack import PYTHON
from infra.application import Application, build
from infra.bundle import ROOT
from infra.environment import Environment, load_environment
from tests.sharing import make_once

# Settings of dev, by the name of the variant.
VARIANTS: Mapping[str, Mapping[str, object]] = {
    "dev": {},
    "tag": {"after_success.action": "tag", "after_success.tags.state": "extracted"},
}


def synthesize_once(factory: pytest.TempPathFactory, variant: str) -> Assembly:
    """Return the assembly of a variant of dev; a session writes all of them at once.

    tests/infra/test_cdk_cli.py shows that `cdk synth` writes the same template.
    """
    if not PYTHON.exists():
        pytest.skip("no embedded AWS: make it with `uv sync --project embedded --frozen`")
    return _find(make_once(factory, "assemblies", _write_variants) / variant)


def synthesize_environment(environment: Environment, folder: Path) -> Assembly:
    """Write the assembly of an environment that is in no file, with the package as its asset."""
    code = folder / "code"
    make_asset(code)
    return _write(environment, folder / "cdk.out", code)


def _write_variants(folder: Path) -> None:
    """Write each variant into a folder of its name, without CDK's linter and cdk-nag."""
    done = subprocess.run(
        [sys.executable, "-m", __name__, str(folder)],
        cwd=ROOT,
        env={**os.environ, "CDK_VALIDATION": "false"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _write(environment: Environment, folder: Path, code: Path) -> Assembly:
    from aws_cdk import aws_lambda as lambda_  # noqa: PLC0415 - after `infra`: it names the Node

    build(Application(folder, linter=False), environment, lambda_.Code.from_asset(str(code)))
    return _find(folder)


def _find(folder: Path) -> Assembly:
    (template,) = folder.glob("*.template.json")
    return Assembly(folder, template.name.removesuffix(".template.json"))


if __name__ == "__main__":
    root = Path(sys.argv[1])
    make_asset(root / "code")
    for name, settings in VARIANTS.items():
        _write(load_environment("dev", settings=settings), root / name, root / "code")
