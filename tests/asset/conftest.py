"""The asset, built once for this machine's CPython 3.13."""

import json
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import pytest

from infra.bundle import Bundle, Target, build_bundle, find_python, find_uv
from tests.sharing import make_once


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
    folder = make_once(tmp_path_factory, "asset", partial(_build, python))
    built = Bundle(**json.loads((folder / "built.json").read_text()))
    return Asset(folder / "lambda", python, built)


def _build(python: str, folder: Path) -> None:
    built = build_bundle(folder / "lambda", Target(python))
    (folder / "built.json").write_text(json.dumps(asdict(built)))
