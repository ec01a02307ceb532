"""What a user installs: the wheel of this checkout."""

import os
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.support.assemblies import make_once
from tests.support.processes import run_program


@pytest.fixture(scope="session")
def installed(uv: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel, install it by `uv tool install`; return the folder of its commands."""
    return make_once(tmp_path_factory, "wheel", partial(_install, uv)) / "bin"


@pytest.fixture(scope="session")
def wheel(installed: Path) -> Path:
    (found,) = (installed.parent / "dist").glob("s3unzip-*.whl")
    return found


def _install(uv: Path, folder: Path) -> None:
    run_program([uv, "build", "--wheel", "--out-dir", folder / "dist"], os.environ)
    (wheel,) = (folder / "dist").glob("s3unzip-*.whl")
    places = {"UV_TOOL_DIR": str(folder / "tools"), "UV_TOOL_BIN_DIR": str(folder / "bin")}
    run_program([uv, "tool", "install", "--python", sys.executable, wheel], os.environ | places)
