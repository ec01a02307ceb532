"""The figures of the structure, on a tree made for it and on this one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tools.mutants.record import Result, read_targets, write_record
from tools.structure import (
    MAX_FILE_LINES,
    MAX_FUNCTION_LINES,
    MAX_MODULES,
    PACKAGE,
    PRODUCT,
    RECORDS,
    ROOT,
    Allowance,
    Measured,
    describe,
    describe_branches,
    describe_mutants,
    find_faults,
    measure,
    percentile,
    read_allowance,
)

if TYPE_CHECKING:
    from pathlib import Path

NOTHING = Allowance(frozenset(), frozenset())


def write(root: Path, name: str, text: str) -> None:
    """Write a file and the folders it needs."""
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def function(lines: int, indent: str = "") -> str:
    """Return a function of so many lines."""
    body = f"{indent}    x = 1\n" * (lines - 1)
    return f"{indent}def long():\n{body}"


def test_files_functions_and_folders_are_counted(tmp_path: Path) -> None:
    """Nested functions count with their full name; __init__ is no module of its folder."""
    write(tmp_path, "a/__init__.py", "")
    write(tmp_path, "a/one.py", "class C:\n" + function(3, "    "))
    write(tmp_path, "a/b/two.py", "def f():\n    def g():\n        pass\n    return g\n")
    found = measure(tmp_path, ["a"])
    assert found.files == (
        Measured("a/__init__.py", 0),
        Measured("a/b/two.py", 4),
        Measured("a/one.py", 4),
    )
    assert found.functions == (
        Measured("a/b/two.py::f", 4),
        Measured("a/b/two.py::f.g", 2),
        Measured("a/one.py::C.long", 3),
    )
    assert found.modules == {"a": 1, "a/b": 1}
    assert found.lines == 8


def test_limits_hold_at_their_edges(tmp_path: Path) -> None:
    """A value equal to its limit passes; one line or module more is reported."""
    write(tmp_path, "a/file.py", "x = 1\n" * MAX_FILE_LINES)
    write(tmp_path, "a/function.py", function(MAX_FUNCTION_LINES))
    for number in range(MAX_MODULES):
        write(tmp_path, f"{PACKAGE}/m{number}.py", "")
    assert find_faults(measure(tmp_path, ["a", PACKAGE]), NOTHING) == []
    write(tmp_path, "a/file.py", "x = 1\n" * (MAX_FILE_LINES + 1))
    write(tmp_path, "a/function.py", function(MAX_FUNCTION_LINES + 1))
    write(tmp_path, f"{PACKAGE}/more.py", "")
    faults = find_faults(measure(tmp_path, ["a", PACKAGE]), NOTHING)
    assert [fault.split(",")[0] for fault in faults] == [
        f"{PACKAGE} has 15 modules",
        "a/file.py has 301 lines",
        "a/function.py::long has 51 lines",
    ]


def test_the_allowance_only_gets_shorter(tmp_path: Path) -> None:
    """A listed file may be long; one that is short again, or gone, must leave the list."""
    write(tmp_path, "a/long.py", "x = 1\n" * (MAX_FILE_LINES + 1))
    write(tmp_path, "a/short.py", "x = 1\n")
    allowed = Allowance(frozenset({"a/long.py", "a/short.py", "a/gone.py"}), frozenset())
    faults = find_faults(measure(tmp_path, ["a"]), allowed)
    assert [fault.split(" ")[0] for fault in faults] == ["a/gone.py", "a/short.py"]


def test_percentiles() -> None:
    """They are values that occur, and nothing has none."""
    assert percentile([5, 1, 4, 2, 3], 0.5) == 3
    assert percentile([1, 2], 1.0) == 2
    assert percentile([], 0.9) == 0


def test_records_are_told(tmp_path: Path) -> None:
    """Branches and mutants come from their records; without one the command is named."""
    record = tmp_path / "record.json"
    assert "make coverage" in describe_branches(record)
    assert "make mutants" in describe_mutants(record)
    record.write_text(json.dumps({"run": 93, "every": 100, "commit": "abc"}))
    assert describe_branches(record) == "branches covered: 93 of 100, 93.0% (at abc)"
    write_record({"a.py": result(10, "x"), "b.py": result(5)}, record)
    told = describe_mutants(record)
    assert told.startswith(f"mutants killed: 14 of 15 tried in 2 of {len(read_targets())} modules")
    assert "why 1 survive" in told


def result(tried: int, *survived: str) -> Result:
    """Return what was found of a module."""
    return Result("", "", tried, tried, survived)


def test_this_tree_is_measured() -> None:
    """The figures of this checkout exist; `make check` compares them with the limits."""
    structure = measure(ROOT)
    assert structure.lines > 20_000
    assert len(describe(structure)) == 4
    assert all((ROOT / folder).is_dir() for folder in PRODUCT)
    assert read_allowance(RECORDS / "too_long.toml").files <= {
        file.name for file in structure.files
    }
