"""The files that docs/architecture.md names are there."""

from __future__ import annotations

import re

from tests.docs.commands import ROOT

PAGE = ROOT / "docs" / "architecture.md"
PLACES = (ROOT, ROOT / "functions" / "s3unzip")


def test_every_file_of_the_page_exists() -> None:
    """A path in the page leads to a file or folder of the checkout or of the package."""
    named = set(re.findall(r"`([a-z_0-9/]+(?:\.py|/))`", PAGE.read_text()))
    assert len(named) > 30
    lost = [name for name in named if not any((place / name).exists() for place in PLACES)]
    assert lost == []


def test_no_folder_of_the_package_holds_more_than_fourteen_modules() -> None:
    """A newcomer can read the list of each folder at a glance."""
    package = PLACES[1]
    folders = [package, *(path for path in package.rglob("*") if path.is_dir())]
    counts = {
        str(folder.relative_to(package)): sum(
            1 for module in folder.glob("*.py") if module.name != "__init__.py"
        )
        for folder in folders
    }
    assert {name: count for name, count in counts.items() if count > 14} == {}
