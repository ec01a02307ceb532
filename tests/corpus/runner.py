"""``python -m tests.corpus.runner``: print the tables of both corpora.

Of the project's own archives it runs every way and asks every independent reader that is installed.
"""

import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.corpus import larger, readers
from tests.corpus.families import ARCHIVES
from tests.corpus.labels import Archive
from tests.corpus.ways import differing_ways, read_by_members


class Row(NamedTuple):
    """How one archive ended: `differences` are lines."""

    name: str
    expected: str
    differences: list[str]


def _read_own() -> Iterator[Row]:
    for name, archive in ARCHIVES.items():
        lines = [f"{way}: {result}" for way, result in differing_ways(archive).items()]
        for reader in readers.READERS:
            if readers.can_read(reader, archive):
                with tempfile.TemporaryDirectory() as folder:
                    words = readers.compare(archive, reader, Path(folder))
                lines += [f"{reader}: {words}"] * bool(words)
        yield Row(name, archive.expected.outcome, lines)


def read_larger() -> Iterator[Row]:
    """Read the archives of the larger corpus, except for the differences that are known."""
    known = larger.read_differences()
    for label in larger.read_labels():
        lines = larger.compare(label, read_by_members(Archive(raw=label.read())))
        yield Row(label.path, label.expected, [] if label.path in known else lines)


def main() -> int:
    """Print both tables; return 1 if an archive differs."""
    outcomes = Counter[str]()
    is_equal = True
    for row in (*_read_own(), *read_larger()):
        outcomes[f"{row.name.partition('/')[0]:20} {row.expected}"] += 1
        for line in row.differences:
            is_equal = False
            print(f"DIFFERS {row.name}: {line}")  # noqa: T201 - a report
    for title, count in sorted(outcomes.items()):
        print(f"{count:5} {title}")  # noqa: T201 - as above
    absent = readers.COMMANDS.keys() - set(readers.READERS)
    print(f"{outcomes.total()} archives {larger.find_absence()}")  # noqa: T201 - as above
    print(f"compared with {readers.READERS}; not installed: {sorted(absent)}")  # noqa: T201 - as above
    return int(not is_equal)


if __name__ == "__main__":
    sys.exit(main())
