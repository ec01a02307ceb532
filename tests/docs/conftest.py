"""What a user installs: the wheel of this checkout, in an environment of its own."""

import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.docs.commands import ROOT
from tests.sharing import make_once


def _find_uv() -> str | None:
    own = ROOT / ".uv" / "bin" / "uv"
    return str(own) if own.exists() else shutil.which("uv")


@pytest.fixture(scope="session")
def uv() -> Path:
    """Return the program uv."""
    found = _find_uv()
    if found is None:
        pytest.skip("uv is not installed: make installs it")
    return Path(found)


@pytest.fixture(scope="session")
def installed(uv: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel, install it into a clean environment; return the folder of its commands."""
    return make_once(tmp_path_factory, "wheel", partial(_install, str(uv))) / "environment" / "bin"


@pytest.fixture(scope="session")
def wheel(installed: Path) -> Path:
    """Return the wheel of this checkout."""
    (found,) = (installed.parent.parent / "dist").glob("s3unzip-*.whl")
    return found


def _install(uv: str, folder: Path) -> None:
    environment = folder / "environment"
    for words in (
        ["build", "--wheel", "--out-dir", str(folder / "dist"), str(ROOT)],
        ["venv", "--python", sys.executable, str(environment)],
    ):
        _run(uv, *words)
    (wheel,) = (folder / "dist").glob("s3unzip-*.whl")
    python = environment / "bin" / "python"
    _run(uv, "pip", "install", "--python", str(python), str(wheel))


def _run(uv: str, *words: str) -> None:
    done = subprocess.run([uv, "--quiet", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
