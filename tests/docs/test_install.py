"""The wheel in a clean environment: without the checkout, its tools or its dependencies."""

import os
import sys
import zipfile
from pathlib import Path

import pytest

import s3unzip
from tests.docs.commands import PLAIN, ROOT, make_archive
from tests.support.processes import run_program


def _call(command: Path, folder: Path, *words: str) -> str:
    variables = {
        "PATH": f"{command.parent}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(folder),
        "S3UNZIP_HOME": str(folder / ".runs"),
        "LANG": "C.UTF-8",
    }
    return run_program([command, *words], variables, folder)


def _check_listing(command: Path, folder: Path) -> None:
    (folder / "a.zip").write_bytes(make_archive("archive.zip"))
    assert _call(command, folder, "--version") == f"s3unzip {s3unzip.__version__}\n"
    listed = _call(command, folder, "ls", "a.zip")
    assert all(str(entry.name) in listed for entry in PLAIN)


def test_the_wheel_works_alone(installed: Path, tmp_path: Path) -> None:
    """A listing, a run, a verify and a report page, in a folder with one archive."""
    command = installed / "s3unzip"
    _check_listing(command, tmp_path)
    _call(command, tmp_path, "run", "a.zip", "out", "-w", "1")
    assert (tmp_path / "out/a/docs/readme.txt").read_bytes() == b"Read me.\n" * 40
    assert _call(command, tmp_path, "verify", "a.zip", "out").split()[0] == "EQUAL"
    assert _call(command, tmp_path, "show", "latest", "--html").strip().endswith("report.html")


def test_pipx_installs_it(uv: Path, wheel: Path, tmp_path: Path) -> None:
    """Pipx installs by uv where it finds uv, which takes a tenth of the time."""
    places = {
        "PATH": f"{uv.parent}{os.pathsep}{os.environ['PATH']}",
        "PIPX_HOME": str(tmp_path / "pipx"),
        "PIPX_BIN_DIR": str(tmp_path / "bin"),
        "PIPX_MAN_DIR": str(tmp_path / "man"),
    }
    python: list[str | Path] = ["--python", sys.executable]
    pipx = [uv, "tool", "run", *python, "--from", "pipx==1.18.4", "pipx", "install", *python, wheel]
    run_program(pipx, os.environ | places)
    _check_listing(tmp_path / "bin" / "s3unzip", tmp_path)


def test_the_wheel_holds_the_package_only(wheel: Path) -> None:
    """Nothing of the infrastructure, the tests or the tools is installed."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert "s3unzip/py.typed" in names
    metadata = f"s3unzip-{s3unzip.__version__}.dist-info/"
    assert [name for name in names if not name.startswith(("s3unzip/", metadata))] == []


@pytest.mark.parametrize("page", ["README.md", "docs/tutorial.md"])
def test_the_pages_install_from_a_clone(page: str) -> None:
    """README and tutorial name the ways above; what they name needs no published package."""
    text = (ROOT / page).read_text(encoding="utf-8")
    words = ("uv tool install .\n", "pipx install .\n", "uvx")
    assert [word in text for word in words] == [True, True, False]
