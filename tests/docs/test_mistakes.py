"""Every mistake of docs/mistakes.toml is made, and prints what the reference says."""

import shlex
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from s3unzip.cli.main import main
from tests.docs.commands import ROOT
from tests.docs.mistaken import mistaken_world
from tests.processes import LIMITED, Program

MISTAKES = tomllib.loads((ROOT / "docs" / "mistakes.toml").read_text())["mistake"]
MIN_MISTAKES = 60
HIDDEN = ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_ENDPOINT_URL", "NO_COLOR")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dict[str, str]]]:
    """Return the folder in which the mistakes are made, and what the placeholders stand for."""
    folder = tmp_path_factory.mktemp("mistakes")
    with mistaken_world(folder) as known:
        yield folder, known


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake["command"])
def test_a_mistake_says(
    mistake: dict[str, str | int],
    world: tuple[Path, dict[str, str]],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """The exit code and the line are the documented ones, and nothing is a traceback."""
    folder, known = world
    monkeypatch.chdir(folder)
    for name in HIDDEN:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("S3UNZIP_HOME", str(folder / ".runs"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(folder / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(folder / "none"))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    words = [_filled(word, known) for word in shlex.split(str(mistake["command"]))]
    code = _run_limited(words) if mistake.get("limited") else _run(words)
    written = capfd.readouterr()
    said = written.err + written.out
    assert code == mistake["exit"]
    assert _filled(str(mistake["says"]), known) in [line.strip() for line in said.splitlines()]
    assert "Traceback" not in said
    assert "internal error" not in said


def _run(words: list[str]) -> object:
    with pytest.raises(SystemExit) as end:
        main(words)
    return end.value.code


def _run_limited(words: list[str]) -> int:
    if LIMITED is None:
        pytest.skip("root may do everything; no setpriv")
    done = subprocess.run(
        [*LIMITED, *Program.command, *words], stdin=subprocess.DEVNULL, check=False
    )
    return done.returncode


def _filled(text: str, known: dict[str, str]) -> str:
    for mark, value in known.items():
        text = text.replace(mark, value)
    return text
