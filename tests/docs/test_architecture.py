"""The files that docs/architecture.md names are there."""

import re
from pathlib import Path

import pytest

from tests.docs.commands import ROOT
from tools.walk import walk_member

PAGE = ROOT / "docs" / "architecture.md"
PLACES = (ROOT, ROOT / "functions" / "s3unzip", ROOT / "tests")


def test_every_file_of_the_page_exists() -> None:
    """A path in the page leads to a file or folder of the checkout, the package or the tests."""
    named = set(re.findall(r"`([a-z_0-9/]+(?:\.py|/))`", PAGE.read_text()))
    assert len(named) > 30
    assert [name for name in named if not any((place / name).exists() for place in PLACES)] == []


def test_the_walk_is_as_long_as_the_page_says(tmp_path: Path) -> None:
    """Modules and functions that one member passes differ from the page by a tenth at most."""
    steps = "|".join(walks := walk_member(tmp_path))
    row = rf"\| ({steps}) \|.*\| (\d+) modules, (\d+) functions \|$"
    told = {
        step: (int(modules), int(functions))
        for step, modules, functions in re.findall(row, PAGE.read_text(), re.MULTILINE)
    }
    for step, walk in walks.items():
        found = len(walk.modules), len(walk.functions)
        assert found == pytest.approx(told[step], rel=0.1), f"{step}: {found}; update the page"
