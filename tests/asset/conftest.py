"""The asset, built once for this machine's CPython 3.13."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from infra.bundle import Bundle, Target, build_bundle, find_uv
from infra.compiling import find_python

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Asset:
    """A built asset: its folder, the interpreter it is for, what was built."""

    folder: Path
    python: str
    built: Bundle


@pytest.fixture(scope="session")
def asset(tmp_path_factory: pytest.TempPathFactory) -> Asset:
    """The asset with wheels of this machine, as `cdk deploy` builds it for Lambda's."""
    python = find_python(find_uv())
    if python is None:
        pytest.skip("no CPython 3.13 on this machine: install one with `uv python install 3.13`")
    folder = tmp_path_factory.mktemp("asset") / "lambda"
    return Asset(folder, python, build_bundle(folder, Target(python)))
