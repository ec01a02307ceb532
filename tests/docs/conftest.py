"""A user: who types commands, and what is installed: the wheel of this checkout."""

import os
import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.docs.commands import ROOT
from tests.support.assemblies import make_once
from tests.support.processes import Ended, Program, run_program

HIDDEN = ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_ENDPOINT_URL", "NO_COLOR")


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path, list[str]], Ended]:
    """Run a command in a folder, which has the runs, too; in this process, which takes a tenth."""
    for name in HIDDEN:
        monkeypatch.delenv(name, raising=False)
    return lambda folder, words: Program(folder).run(*words)


@pytest.fixture(scope="session")
def uv() -> Path:
    own = ROOT / ".uv" / "bin" / "uv"
    found = own if own.exists() else shutil.which("uv")
    if found is None:
        pytest.skip("uv is not installed: make installs it")
    return Path(found)


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
