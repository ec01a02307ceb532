"""``python -m tests.corpus.runner``: print the tables of both corpora.

Of the project's own archives it runs every way and asks every independent reader that is installed.
Of the larger corpus it prints each archive whose outcome or members differ from the labels.
"""

import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.corpus import readers
from tests.corpus.families import ARCHIVES
from tests.corpus.labels import Archive
from tests.corpus.larger import ABSENCE, compare, read_differences, read_labels
from tests.corpus.ways import differing_ways, read_by_members


def say(line: str) -> None:
    """Print a line."""
    print(line)  # noqa: T201 - a report


def compare_readers(archive: Archive) -> list[str]:
    """Return what the independent readers say against the label, one line each."""
    lines = list[str]()
    for reader in readers.READERS:
        if readers.can_read(reader, archive):
            with tempfile.TemporaryDirectory() as folder:
                lines.append(readers.compare(archive, reader, Path(folder)))
    return [line for line in lines if line]


def run_own() -> int:
    """Print how the project's own archives end, by family; return how many differ."""
    outcomes = Counter[tuple[str, str]]()
    differing = 0
    for name, archive in ARCHIVES.items():
        outcomes[name.partition("/")[0], archive.expected.outcome] += 1
        lines = [f"{way}: {result}" for way, result in differing_ways(archive).items()]
        lines += compare_readers(archive)
        differing += bool(lines) and not archive.pending
        for line in lines:
            say(f"{archive.pending or 'DIFFERS'}: {name}: {line}")
    for (family, outcome), number in sorted(outcomes.items()):
        say(f"{family:14} {outcome:14} {number:5}")
    say(
        f"{len(ARCHIVES)} own archives, {differing} unknown differences; read with them: "
        f"{', '.join(readers.READERS)}; not here: {', '.join(readers.ABSENT) or 'none'}"
    )
    return differing


def run_larger() -> int:
    """Print how the archives of the larger corpus end; return how many differ."""
    known = read_differences()
    outcomes = Counter[tuple[str, str]]()
    differing = 0
    for label in read_labels():
        result = read_by_members(Archive(raw=label.read()))
        outcomes[label.expected, result.outcome] += 1
        lines = compare(label, result)
        differing += bool(lines) and label.path not in known
        for line in lines:
            mark = "known" if label.path in known else "policy" if label.policy_only else "DIFFERS"
            say(f"{mark:8}{label.path}: {line}")
    for (expected, got), number in sorted(outcomes.items()):
        say(f"{expected:14} {got:14} {number:5}")
    say(f"{outcomes.total()} archives, {differing} unknown differences" if outcomes else ABSENCE)
    return differing


def main() -> int:
    """Print both tables; return 1 if an archive differs that is not listed as known."""
    differing = run_own() + run_larger()
    return min(1, differing)


if __name__ == "__main__":
    sys.exit(main())
