"""The gates: how much the project says and how it reads, and which branches tests take."""

from pathlib import Path
from typing import Any

import pytest

from tools.branches import ALL, CONTROL_PLANE, count_branches, find_low, list_missing
from tools.house import House, find_faults, lower, measure

READER = """
from s3unzip import writer

LIMIT = 1


class Archive:
    size, name = 1, "a"
    found = size if name else 0
"""

WRITER = """
from s3unzip import reader

LIMIT = 2


class Archive:
    def write(self, location):
        if location.scheme == "s3":
            reader.write(1, 2, 3, 4, 5)
        first, second = second, first
"""


@pytest.fixture(name="house")
def fixture_house(tmp_path: Path) -> House:
    package = tmp_path / "functions" / "s3unzip"
    package.mkdir(parents=True)
    (package / "reader.py").write_text(READER)
    (package / "writer.py").write_text(WRITER)
    (package / "page.css").write_text("a {}\nb {}\n")
    (tmp_path / "docs" / "howto").mkdir(parents=True)
    (tmp_path / "docs" / "howto" / "page.md").write_text("# Page\n\nText.\n")
    return measure(tmp_path)


@pytest.mark.parametrize(
    ("figure", "value"),
    [
        ("package thoughts", 14),
        ("package modules", 2),
        ("package classes", 2),
        ("class names used twice", 1),
        ("constants of one name with two values", 1),
        ("longest function", 4),
        ("tuple assignments", 1),
        ("conditional expressions, per 1,000 statements", 83.3),
        ("calls with 5 or more positional arguments", 1),
        ("generic names, % of names stored", 14.3),
        ("questions by scheme outside of stores/", 1),
        ("modules in import circles", 2),
        ("lines of js, css and html in the package", 2),
        ("how-tos", 1),
    ],
)
def test_a_small_project_is_measured(house: House, figure: str, value: float) -> None:
    """Each figure is that of a package whose code was counted by hand."""
    assert house.figures[figure] == value


def test_each_counted_place_is_listed(house: House) -> None:
    """The list names the file, the line and the text of a place."""
    assert "generic names: reader.py:9: found" in house.places
    assert "modules in import circles: s3unzip.reader" in house.places


def test_a_figure_above_its_ceiling_is_a_fault() -> None:
    """So is a figure that has no ceiling. A figure below its ceiling is no fault."""
    assert find_faults({"a": 1, "b": 3, "c": 1}, {"a": 2, "b": 2}) == [
        "b: 3, the ceiling is 2",
        "c: 1, the ceiling is 0",
    ]


def test_ceilings_only_fall() -> None:
    """A lower figure lowers its ceiling; a higher one leaves it, and a new figure gets one."""
    assert lower({"a": 1, "b": 3, "c": 5}, {"a": 2, "b": 2}) == {"a": 1, "b": 2, "c": 5}


def report(files: dict[str, tuple[int, int]]) -> dict[str, Any]:
    """Return what coverage would write of files with branches taken and all."""
    return {
        "files": {
            name: {
                "summary": {"covered_branches": taken, "num_branches": every},
                "missing_branches": [[1, 2]] * (every - taken),
            }
            for name, (taken, every) in files.items()
        }
    }


def test_branches_are_counted_by_package() -> None:
    """Folders below a package count with it; infra is one, and modules of the root another."""
    measured = report(
        {
            "functions/s3unzip/cli/main.py": (1, 2),
            "functions/s3unzip/cli/commands/run.py": (3, 4),
            "functions/s3unzip/clients.py": (5, 6),
            "infra/stack.py": (8, 8),
        }
    )
    counts = count_branches(measured)
    packages = {"functions/s3unzip": (5, 6), "functions/s3unzip/cli": (4, 6), "infra": (8, 8)}
    assert counts == {**packages, ALL: (17, 20)}
    missing = [line.split() for line in list_missing(measured)]
    assert missing[0] == ["functions/s3unzip/cli/commands/run.py", "3/4", "1->2"]
    assert len(missing) == 3


def test_limits_hold_for_the_whole_and_for_the_control_plane() -> None:
    """A package below the limit is reported, and so is a package without any measurement."""
    right = dict.fromkeys(CONTROL_PLANE, (90, 100))
    assert find_low({**right, ALL: (90, 100)}) == []
    (low,) = find_low({**right, ALL: (897, 1_000)})
    assert low.startswith("all product code: 89.7%")
    first, second = CONTROL_PLANE
    low, missing = find_low({second: (8, 9), ALL: (1_000, 1_000)})
    assert low.startswith(f"{first}: 0.0%")
    assert missing.startswith(f"{second}: 88.9%")
