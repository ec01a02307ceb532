"""Every mistake of docs/mistakes.toml is made, and prints what the reference says."""

import shlex
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.docs.commands import ROOT
from tests.docs.mistaken import mistaken_world
from tests.support.processes import LIMITED, Ended, Program

MISTAKES = tomllib.loads((ROOT / "docs" / "mistakes.toml").read_text())["mistake"]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dict[str, str]]]:
    """Return the folder in which the mistakes are made, and what the placeholders stand for."""
    folder = tmp_path_factory.mktemp("mistakes")
    with mistaken_world(folder) as known:
        yield folder, known


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake["command"])
def test_a_mistake_has_the_documented_answer(
    mistake: dict[str, str | int],
    world: tuple[Path, dict[str, str]],
    typed: Callable[[Path, list[str]], Ended],
) -> None:
    """The exit code and the line are the documented ones, and nothing is a traceback."""
    folder, known = world
    words = [_filled(word, known) for word in shlex.split(str(mistake["command"]))]
    if not mistake.get("limited"):
        ended = typed(folder, words)
    elif LIMITED is None:
        pytest.skip("root may do everything; no setpriv")
    else:
        program = Program(folder)
        ended = program.start_as([*LIMITED, *program.command, *words])
    assert ended.code == mistake["exit"]
    said = [line.strip() for line in (ended.err + ended.out).splitlines()]
    assert _filled(str(mistake["says"]), known) in said


def _filled(text: str, known: dict[str, str]) -> str:
    for mark, value in known.items():
        text = text.replace(mark, value)
    return text
