"""``python -m tools.structure``: the figures of the code's structure, and their limits.

``make check`` runs it. It counts the product code, which is the package and the infrastructure,
and fails where a folder, a file or a function is larger than its limit. Files and functions that
were too large when the limits came are listed in ``tools/records/too_long.toml``. That list only
gets shorter: an entry that is no longer needed is a failure too.

Branches and mutants take too long to measure here. The last results are committed in
``tools/records`` by ``make coverage RECORD=1`` and ``make mutants``.
"""

from __future__ import annotations

import ast
import json
import sys
import tomllib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tools.mutants.record import read_record, read_targets

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "functions/s3unzip"
PRODUCT = (PACKAGE, "infra")
RECORDS = ROOT / "tools" / "records"
LINES_BEFORE = 22_163  # of the same folders, at 4c271d3, before the redesign

MAX_MODULES = 14  # in a folder of the package, without __init__.py
MAX_FILE_LINES = 300
MAX_FUNCTION_LINES = 50  # from `def` to the last statement, docstring included


@dataclass(frozen=True, slots=True)
class Measured:
    """One file or function and its number of lines."""

    name: str  # a path from the root, with `::function` behind it for a function
    lines: int


@dataclass(frozen=True, slots=True)
class Structure:
    """The counted figures."""

    files: tuple[Measured, ...]
    functions: tuple[Measured, ...]
    modules: dict[str, int]  # of each folder

    @property
    def lines(self) -> int:
        """Lines of all files."""
        return sum(file.lines for file in self.files)


@dataclass(frozen=True, slots=True)
class Allowance:
    """Files and functions that may still be too long."""

    files: frozenset[str]
    functions: frozenset[str]


def measure(root: Path, folders: Iterable[str] = PRODUCT) -> Structure:
    """Count the Python files below `folders` of `root`.

    Raises:
        SyntaxError: a file is not Python.
    """
    files, functions = [], []
    modules: Counter[str] = Counter()
    for path in sorted(path for folder in folders for path in (root / folder).rglob("*.py")):
        name = path.relative_to(root).as_posix()
        text = path.read_text(encoding="utf-8")
        files.append(Measured(name, len(text.splitlines())))
        functions += [
            Measured(f"{name}::{function}", lines)
            for function, lines in _functions(ast.parse(text, name))
        ]
        if path.name != "__init__.py":
            modules[path.parent.relative_to(root).as_posix()] += 1
    return Structure(tuple(files), tuple(functions), dict(modules))


def _functions(node: ast.AST, inside: str = "") -> Iterator[tuple[str, int]]:
    for child in ast.iter_child_nodes(node):
        name = inside
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            name = f"{inside}.{child.name}".lstrip(".")
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield name, (child.end_lineno or child.lineno) - child.lineno + 1
        yield from _functions(child, name)


def percentile(values: Iterable[int], share: float) -> int:
    """Return the value below which `share` (0 to 1) of `values` lie; 0 where there are none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0


def max_modules(structure: Structure, *, package: bool) -> tuple[str, int]:
    """Return the fullest folder in the package, or outside of it, and its number of modules."""
    counts = [
        (count, folder)
        for folder, count in structure.modules.items()
        if Path(folder).is_relative_to(PACKAGE) is package
    ]
    count, folder = max(counts, default=(0, "-"))
    return folder, count


def find_faults(structure: Structure, allowance: Allowance) -> list[str]:
    """Return a sentence for each limit that is broken, and for each allowance without need."""
    faults = [
        f"{folder} has {count} modules, at most {MAX_MODULES} are allowed: make a subfolder"
        for folder, count in sorted(structure.modules.items())
        if count > MAX_MODULES and Path(folder).is_relative_to(PACKAGE)
    ]
    for measured, limit, allowed in (
        (structure.files, MAX_FILE_LINES, allowance.files),
        (structure.functions, MAX_FUNCTION_LINES, allowance.functions),
    ):
        long = {one.name: one.lines for one in measured if one.lines > limit}
        faults += [
            f"{name} has {lines} lines, at most {limit} are allowed: split it"
            for name, lines in sorted(long.items())
            if name not in allowed
        ]
        faults += [
            f"{name} is not too long any more: remove it from tools/records/too_long.toml"
            for name in sorted(allowed - long.keys())
        ]
    return faults


def read_allowance(path: Path) -> Allowance:
    """Read the list of files and functions that may still be too long.

    Raises:
        OSError: there is no such file.
        tomllib.TOMLDecodeError: it is not TOML.
    """
    listed = tomllib.loads(path.read_text(encoding="utf-8"))
    return Allowance(frozenset(listed["files"]), frozenset(listed["functions"]))


def describe(structure: Structure) -> list[str]:
    """Return the figures of `structure`, a line each."""
    files = [file.lines for file in structure.files]
    functions = [function.lines for function in structure.functions]
    long_files = sum(lines > MAX_FILE_LINES for lines in files)
    long_functions = sum(lines > MAX_FUNCTION_LINES for lines in functions)
    folder, count = max_modules(structure, package=True)
    other, others = max_modules(structure, package=False)
    return [
        f"lines of product code: {LINES_BEFORE:,} at 4c271d3, {structure.lines:,} now",
        f"modules a folder: max {count} in {folder} (limit {MAX_MODULES}); {others} in {other}",
        (
            f"file lines: p50 {percentile(files, 0.5)}, max {max(files, default=0)} "
            f"(limit {MAX_FILE_LINES}, {long_files} of {len(files)} above)"
        ),
        (
            f"function lines: p50 {percentile(functions, 0.5)}, p90 {percentile(functions, 0.9)}, "
            f"max {max(functions, default=0)} "
            f"(limit {MAX_FUNCTION_LINES}, {long_functions} of {len(functions):,} above)"
        ),
    ]


def describe_branches(record: Path) -> str:
    """Return the line on covered branches, from what ``make coverage RECORD=1`` wrote."""
    if not record.exists():
        return "branches covered: not measured yet (make coverage RECORD=1)"
    found: dict[str, Any] = json.loads(record.read_text(encoding="utf-8"))
    run, every = found["run"], found["every"]
    return f"branches covered: {run:,} of {every:,}, {run / every:.1%} (at {found['commit']})"


def describe_mutants(record: Path) -> str:
    """Return the line on mutants, from what ``make mutants`` wrote."""
    results = read_record(record)
    if not results:
        return "mutants killed: not measured yet (make mutants)"
    tried = sum(result.tried for result in results.values())
    survived = sum(len(result.survived) for result in results.values())
    return (
        f"mutants killed: {tried - survived:,} of {tried:,} tried in {len(results)} of "
        f"{len(read_targets())} modules; why {survived} survive: tools/records/survivors.toml"
    )


def main() -> int:
    """Print the figures and the broken limits; return 1 if there are any."""
    structure = measure(ROOT)
    lines = describe(structure)
    lines.append(describe_branches(RECORDS / "branches.json"))
    lines.append(describe_mutants(RECORDS / "mutants.json"))
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    faults = find_faults(structure, read_allowance(RECORDS / "too_long.toml"))
    sys.stdout.write("".join(f"error: {fault}\n" for fault in faults))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
