"""The wheel in a clean environment: without the checkout, its tools or its dependencies."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import s3unzip
from tests.docs.archives import PLAIN, make_archive
from tests.docs.commands import ROOT
from tests.patience import HANG_SECONDS

PIPX = "pipx==1.18.4"


def call(command: Path, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run an installed command in `folder`, which is also where its runs are kept."""
    variables = {
        "PATH": f"{command.parent}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(folder),
        "S3UNZIP_HOME": str(folder / ".runs"),
        "LANG": "C.UTF-8",
    }
    return subprocess.run(
        [str(command), *words],
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
    )


def test_the_wheel_works_alone(installed: Path, tmp_path: Path) -> None:
    """Its version, a listing, a run, a verify and a report page, in a folder with one archive."""
    (tmp_path / "a.zip").write_bytes(make_archive("archive.zip"))
    command = installed / "s3unzip"
    assert call(command, tmp_path, "--version").stdout == f"s3unzip {s3unzip.__version__}\n"
    listed = call(command, tmp_path, "ls", "a.zip")
    assert (listed.returncode, listed.stderr) == (0, "")
    assert all(str(entry.name) in listed.stdout for entry in PLAIN)
    ran = call(command, tmp_path, "run", "a.zip", "out", "-w", "1")
    assert ran.returncode == 0, ran.stderr
    assert (tmp_path / "out/a/docs/readme.txt").read_bytes() == b"Read me.\n" * 40
    verified = call(command, tmp_path, "verify", "a.zip", "out")
    assert (verified.returncode, verified.stdout.split()[0]) == (0, "EQUAL")
    page = call(command, tmp_path, "show", "latest", "--html").stdout.strip()
    assert page.endswith("report.html")


def _install_by_uv(uv: Path, wheel: Path, folder: Path) -> Path:
    places = {"UV_TOOL_DIR": str(folder / "tools"), "UV_TOOL_BIN_DIR": str(folder / "bin")}
    _install([uv, "tool", "install", "--python", sys.executable, wheel], places)
    return folder / "bin"


def _install_by_pipx(uv: Path, wheel: Path, folder: Path) -> Path:
    """Pipx installs by uv where it finds uv, which takes a tenth of the time."""
    places = {
        "PATH": f"{uv.parent}{os.pathsep}{os.environ['PATH']}",
        "PIPX_HOME": str(folder / "pipx"),
        "PIPX_BIN_DIR": str(folder / "bin"),
        "PIPX_MAN_DIR": str(folder / "man"),
    }
    pipx: list[str | Path] = [uv, "tool", "run", "--python", sys.executable, "--from", PIPX, "pipx"]
    _install([*pipx, "install", "--python", sys.executable, wheel], places)
    return folder / "bin"


def _install_by_pip(uv: Path, wheel: Path, folder: Path) -> Path:
    """By pip itself, which finds the dependencies there: it takes 20 s to unpack them, uv one."""
    commands = folder / "venv" / "bin"
    _install([uv, "venv", "--seed", "--python", sys.executable, folder / "venv"], {})
    _install([uv, "pip", "install", "--python", commands / "python", wheel], {})
    _install([uv, "pip", "uninstall", "--python", commands / "python", "s3unzip"], {})
    assert not (commands / "s3unzip").exists()
    _install([commands / "pip", "install", wheel], {"PIP_DISABLE_PIP_VERSION_CHECK": "1"})
    return commands


def _install(words: list[str | Path], places: dict[str, str]) -> None:
    done = subprocess.run(
        [str(word) for word in words],
        env=os.environ | places,
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("install", [_install_by_uv, _install_by_pipx, _install_by_pip])
def test_the_wheel_is_installed_in_each_documented_way(
    install: Callable[[Path, Path, Path], Path], uv: Path, wheel: Path, tmp_path: Path
) -> None:
    """In a clean place: the command tells its version and lists an archive."""
    (tmp_path / "a.zip").write_bytes(make_archive("archive.zip"))
    command = install(uv, wheel, tmp_path) / "s3unzip"
    assert call(command, tmp_path, "--version").stdout == f"s3unzip {s3unzip.__version__}\n"
    listed = call(command, tmp_path, "ls", "a.zip")
    assert (listed.returncode, listed.stderr) == (0, "")
    assert all(str(entry.name) in listed.stdout for entry in PLAIN)


def test_the_wheel_holds_the_package_only(installed: Path) -> None:
    """Nothing of the infrastructure, the tests or the tools is installed."""
    (site,) = installed.parent.glob("lib/python3.*/site-packages")
    assert (site / "s3unzip" / "py.typed").is_file()
    for name in ("infra", "tests", "tools", "embedded", "aws_cdk", "moto", "pytest"):
        assert not (site / name).exists()


def test_the_pages_install_from_a_clone() -> None:
    """README and tutorial name the ways above; what they name needs no published package."""
    for page in ("README.md", "docs/tutorial.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        for line in ("uv tool install .\n", "pipx install .\n"):
            assert line in text, page
        assert "uvx" not in text
