"""``python -m tools.house``: how large the project is, beside ceilings that only fall.

``make check`` runs it, and fails where a figure is above its ceiling in
``tools/records/ceilings.json``. ``--lower`` writes the figures of today there; it raises none.
Statements are those of `ast`, so that line breaks do not matter.
"""

import ast
import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RECORDS = ROOT / "tools" / "records"
CEILINGS = RECORDS / "ceilings.json"
PACKAGE = "functions/s3unzip"
FOLDERS = ("tests", "embedded", "bench", "infra", "acceptance", "tools")
SKIPPED = {"__pycache__", ".venv", "node_modules", "build"}


def list_files(root: Path, folder: str) -> list[Path]:
    """Return the Python files below a folder."""
    found = sorted((root / folder).rglob("*.py"))
    return [path for path in found if not SKIPPED & set(path.relative_to(root).parts)]


def count_lines(paths: list[Path]) -> int:
    """Return the lines of all files."""
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)


def measure_package(root: Path) -> dict[str, float]:
    """Return the figures of the package's code."""
    files = list_files(root, PACKAGE)
    nodes = [node for path in files for node in ast.walk(ast.parse(path.read_text("utf-8")))]
    names = Counter(node.name for node in nodes if isinstance(node, ast.ClassDef))
    lines = count_lines(files)
    spans = [
        ((node.end_lineno or 0) - node.lineno + 1, isinstance(node, ast.Import | ast.ImportFrom))
        for node in nodes
        if isinstance(node, ast.Import | ast.ImportFrom | ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    imported = sum(span for span, is_import in spans if is_import)
    return {
        "package lines": lines,
        "package statements": sum(isinstance(node, ast.stmt) for node in nodes),
        "package modules": len(files),
        "package classes": names.total(),
        "class names used twice": sum(count > 1 for count in names.values()),
        "longest file": max((count_lines([path]) for path in files), default=0),
        "longest function": max((span for span, is_import in spans if not is_import), default=0),
        "imports, % of package lines": round(100 * imported / max(1, lines), 1),
    }


def measure_commands(tool: Path) -> dict[str, float]:
    """Return how many commands the installed tool has, and how many options `run`."""

    def ask(*words: str) -> str:
        command = [str(tool), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout  # noqa: S603 - fixed arguments

    commands = ask("--help").partition("Commands:")[2]
    options = re.findall(r"^\s+(?:-\w, )?--[a-z][\w-]+", ask("run", "--help"), re.MULTILINE)
    return {
        "commands": len(re.findall(r"^  [a-z][a-z-]+ {2,}\S", commands, re.MULTILINE)),
        "options of run": len(options),
    }


def measure(root: Path) -> dict[str, float]:
    """Return all figures of a checkout."""
    found = measure_package(root)
    found |= {f"{folder} lines": count_lines(list_files(root, folder)) for folder in FOLDERS}
    found["docs lines (md)"] = count_lines(sorted((root / "docs").rglob("*.md")))
    found["how-tos"] = len(list((root / "docs" / "howto").glob("*.md")))
    tool = root / ".venv" / "bin" / "s3unzip"
    return found | (measure_commands(tool) if tool.exists() else {})


def find_faults(found: dict[str, float], ceilings: dict[str, float]) -> list[str]:
    """Return a sentence for each figure above its ceiling, or without one."""
    return [
        f"{name}: {value:g}, the ceiling is {ceilings.get(name, 0):g}"
        for name, value in found.items()
        if value > ceilings.get(name, 0)
    ]


def lower(found: dict[str, float], ceilings: dict[str, float]) -> dict[str, float]:
    """Return the ceilings, each as low as the figure of today; none is raised."""
    return {name: min(value, ceilings.get(name, value)) for name, value in found.items()}


def main() -> int:
    """Print the figures; return 1 where one is above its ceiling."""
    found = measure(ROOT)
    ceilings = json.loads(CEILINGS.read_text(encoding="utf-8")) if CEILINGS.exists() else {}
    if "--lower" in sys.argv:
        ceilings = lower(found, ceilings)
        CEILINGS.write_text(json.dumps(ceilings, indent=1) + "\n", encoding="utf-8")
    for name, value in found.items():
        sys.stdout.write(f"{name:30} {value:>8g} {ceilings.get(name, 0):>8g}\n")
    faults = find_faults(found, ceilings)
    sys.stdout.write("".join(f"error: {fault}\n" for fault in faults))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
