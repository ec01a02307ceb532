"""`python -m tests.branches FILE`: the share of branches that were run, a package a line.

FILE is what ``coverage json`` writes. Statements and branches together, which coverage itself
compares with a limit, would hide branches that no test takes.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

MIN_SHARE = 0.9
PACKAGE_DEPTH = 3  # functions/s3unzip/handlers


def count_branches(report: dict[str, Any]) -> dict[str, tuple[int, int]]:
    """Return how many branches of each package were run, and how many it has."""
    run: Counter[str] = Counter()
    every: Counter[str] = Counter()
    for name, file in report["files"].items():
        package = "/".join(Path(name).parts[:PACKAGE_DEPTH])
        run[package] += file["summary"]["covered_branches"]
        every[package] += file["summary"]["num_branches"]
    return {package: (run[package], every[package]) for package in sorted(every)}


def print_table(report: dict[str, Any]) -> None:
    """Print what is missing of each file: lines, and branches as from->to."""
    for name, file in sorted(report["files"].items()):
        lines = ", ".join(str(line) for line in file["missing_lines"])
        branches = ", ".join(f"{start}->{end}" for start, end in file["missing_branches"])
        summary = file["summary"]
        share = f"{summary['covered_branches']}/{summary['num_branches']}"
        sys.stdout.write(f"{name:56} {share:>8}  {lines}{'; ' if branches else ''}{branches}\n")


def main() -> int:
    """Print the tables; return 1 where a package is below the limit."""
    report: dict[str, Any] = json.loads(Path(sys.argv[1]).read_text())
    print_table(report)
    packages = count_branches(report)
    low = 0
    for package, (run, every) in packages.items():
        share = run / every if every else 1.0
        low += share < MIN_SHARE
        sys.stdout.write(f"{package}: {run} of {every} branches, {share:.1%}\n")
    if low or not packages:
        sys.stdout.write(f"below {MIN_SHARE:.0%} of branches, or nothing was measured\n")
    return 1 if low or not packages else 0


if __name__ == "__main__":
    sys.exit(main())
