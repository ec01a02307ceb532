"""The gate on the project's size: what it counts, and that ceilings only fall."""

from pathlib import Path

from tools.house import find_faults, lower, measure


def test_a_small_project_is_counted(tmp_path: Path) -> None:
    """Lines, statements, classes, names that stand twice, and the share of imports."""
    package = tmp_path / "functions" / "s3unzip"
    package.mkdir(parents=True)
    (package / "one.py").write_text("import os\n\n\nclass A:\n    x = os\n")
    (package / "two.py").write_text("class A:\n    def f(self):\n        return 1\n")
    (tmp_path / "docs" / "howto").mkdir(parents=True)
    (tmp_path / "docs" / "howto" / "page.md").write_text("# Page\n\nText.\n")
    found = measure(tmp_path)
    assert found["package lines"] == 8
    assert found["package statements"] == 6
    assert (found["package classes"], found["class names used twice"]) == (2, 1)
    assert found["longest function"] == 2
    assert found["imports, % of package lines"] == 12.5
    assert (found["docs lines (md)"], found["how-tos"]) == (3, 1)


def test_a_figure_above_its_ceiling_is_a_fault() -> None:
    """So is a figure that has none; a lower one is none."""
    assert find_faults({"a": 1, "b": 3, "c": 1}, {"a": 2, "b": 2}) == [
        "b: 3, the ceiling is 2",
        "c: 1, the ceiling is 0",
    ]


def test_ceilings_only_fall() -> None:
    """A lower figure lowers its ceiling; a higher one leaves it, and a new figure gets one."""
    assert lower({"a": 1, "b": 3, "c": 5}, {"a": 2, "b": 2}) == {"a": 1, "b": 2, "c": 5}
