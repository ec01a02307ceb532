"""What a session makes once, whoever asks for it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from tests.sharing import make_once

if TYPE_CHECKING:
    from pathlib import Path


def test_who_asks_at_the_same_time_waits(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The folder is made once, and nobody sees it half made."""
    made: list[Path] = []
    tmp_path_factory.getbasetemp()  # which threads may not make at the same time

    def make(folder: Path) -> None:
        made.append(folder)
        for number in range(50):
            (folder / str(number)).touch()

    def ask(_: int) -> int:
        return len(list(make_once(tmp_path_factory, "test-sharing", make).iterdir()))

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(ask, range(8))) == [50] * 8
    assert len(made) == 1


def test_a_failure_leaves_nothing_to_the_next(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What was half made is not used."""

    def fail(folder: Path) -> None:
        (folder / "half").touch()
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        make_once(tmp_path_factory, "test-failing", fail)
    folder = make_once(tmp_path_factory, "test-failing", lambda path: (path / "whole").touch())
    assert [path.name for path in folder.iterdir()] == ["whole"]
