"""The asset, built once for this machine's CPython 3.13."""

from pathlib import Path
from typing import NamedTuple

import pytest

from infra.bundle import Target, build_bundle, find_python, find_uv
from tests.support.assemblies import make_once


class Asset(NamedTuple):
    """A built asset: its folder, and the interpreter it is for."""

    folder: Path
    python: str


@pytest.fixture(scope="session")
def asset(tmp_path_factory: pytest.TempPathFactory) -> Asset:
    """The asset with wheels of this machine, as `cdk deploy` builds it for Lambda's."""
    python = find_python(find_uv())
    if python is None:
        pytest.skip("no CPython 3.13 on this machine: install one with `uv python install 3.13`")
    target = Target(python)
    made = make_once(tmp_path_factory, "asset", lambda to: build_bundle(to / "lambda", target))
    return Asset(made / "lambda", python)
