"""``python -m tools.branches FILE``: the share of branches that the tests take, and its limit.

FILE is what ``coverage json`` writes. Coverage's own limit is on statements and branches together,
which would hide branches that no test takes. The limit holds for all product code together, and
for each package of the control plane, whose tests need no embedded AWS.
"""

import argparse
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

MIN_SHARE = 0.9
PACKAGE_DEPTH = 3  # functions/s3unzip/aws
ALL = "all product code"
CONTROL_PLANE = tuple(f"functions/s3unzip/{name}" for name in ("aws", "operate"))

Counts = dict[str, tuple[int, int]]  # branches taken, and all, by package


def count_branches(report: dict[str, Any]) -> Counts:
    """Return how many branches of each package were taken, and how many it has; last of all."""
    taken: Counter[str] = Counter()
    every: Counter[str] = Counter()
    for name, file in report["files"].items():
        parts = Path(name).parts
        package = "/".join(parts[: min(PACKAGE_DEPTH, len(parts) - 1)])
        taken[package] += file["summary"]["covered_branches"]
        every[package] += file["summary"]["num_branches"]
    counts = {package: (taken[package], every[package]) for package in sorted(every)}
    return counts | {ALL: (taken.total(), every.total())}


def find_low(counts: Counts) -> list[str]:
    """Return a sentence for each limit that is not reached."""
    if not counts[ALL][1]:
        return ["no branch was measured"]
    low = []
    for package in (ALL, *CONTROL_PLANE):
        taken, every = counts.get(package, (0, 0))
        share = taken / max(1, every)
        if share < MIN_SHARE:
            low.append(f"{package}: {share:.1%} of branches, at least {MIN_SHARE:.0%}")
    return low


def list_missing(report: dict[str, Any]) -> list[str]:
    """Return a line for each file with branches that were not taken, those as from->to."""
    lines = []
    for name, file in sorted(report["files"].items()):
        branches = ", ".join(f"{start}->{end}" for start, end in file["missing_branches"])
        summary = file["summary"]
        share = f"{summary['covered_branches']}/{summary['num_branches']}"
        if branches:
            lines.append(f"{name:56} {share:>8}  {branches}")
    return lines


def main() -> int:
    """Print what is missing and the shares; return 1 where a limit is not reached."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("file", type=Path)
    report: dict[str, Any] = json.loads(parser.parse_args().file.read_text(encoding="utf-8"))
    counts = count_branches(report)
    lines = list_missing(report)
    for package, (taken, every) in counts.items():
        if every:
            lines.append(f"{package}: {taken:,} of {every:,} branches, {taken / every:.1%}")
    low = find_low(counts)
    lines += [f"error: {line}" for line in low]
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return 1 if low else 0


if __name__ == "__main__":
    sys.exit(main())
