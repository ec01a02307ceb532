"""Check a release tag against the version and the changelog; write the release notes.

::

    python -m tools.release --tag v1.2.3 --notes dist/notes.md

A release is a tag ``v<version>`` on a commit whose `s3unzip.__version__` is that version and
whose CHANGELOG.md has a section for it, with a date, as Keep a Changelog asks.
"""

import argparse
import re
import sys
from pathlib import Path

from s3unzip import __version__

CHANGELOG = Path(__file__).resolve().parent.parent / "CHANGELOG.md"


class ReleaseError(Exception):
    """The tag, the version and the changelog do not agree; the message says where."""


def release_notes(tag: str, version: str, changelog: str) -> str:
    """Return the changelog's section for `version`, without its heading."""
    if tag != f"v{version}":
        raise ReleaseError(
            f"the tag is {tag}, but the version is {version}: tag v{version}, or change "
            "__version__ in functions/s3unzip/version.py"
        )
    heading = rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$"
    found = re.search(heading + r"(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL)
    if found is None:
        raise ReleaseError(
            f"CHANGELOG.md has no section `## [{version}] - YYYY-MM-DD`: rename `## [Unreleased]`"
        )
    notes = found[1].strip()
    if not notes:
        raise ReleaseError(f"the section of {version} in CHANGELOG.md is empty")
    return notes + "\n"


def main() -> None:
    """Write the notes, or say what does not agree."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tag", required=True, help="the release's tag, v1.2.3")
    parser.add_argument("--notes", required=True, type=Path, help="file to write the notes to")
    arguments = parser.parse_args()
    try:
        notes = release_notes(arguments.tag, __version__, CHANGELOG.read_text(encoding="utf-8"))
    except ReleaseError as error:
        sys.exit(f"error: {error}")
    arguments.notes.parent.mkdir(parents=True, exist_ok=True)
    arguments.notes.write_text(notes, encoding="utf-8")


if __name__ == "__main__":
    main()
