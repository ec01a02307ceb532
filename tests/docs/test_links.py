"""Relative links and pictures in README.md and docs/ lead somewhere."""

import re
from pathlib import Path

import pytest

from tests.docs.commands import BLOCK, ROOT, show_page

LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def _anchors(page: Path) -> set[str]:
    text = BLOCK.sub("", page.read_text(encoding="utf-8"))
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in HEADING.findall(text))
    return {heading.strip().replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("page", PAGES, ids=show_page)
def test_links_lead_somewhere(page: Path) -> None:
    """Every relative link names a file of the repository, and a heading that is in it."""
    text = BLOCK.sub("", page.read_text(encoding="utf-8"))
    broken = []
    for target in LINK.findall(re.sub(r"`[^`]*`", "`", text)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (anchor and file.suffix == ".md" and anchor not in _anchors(file)):
            broken.append(target)
    assert not broken


def test_every_page_is_in_the_index() -> None:
    """The map of the documentation, and that of its site, name every page that people write."""
    linked = set(LINK.findall((ROOT / "docs" / "index.md").read_text(encoding="utf-8")))
    pages = {str(page.relative_to(ROOT / "docs")) for page in PAGES[1:]}
    assert not pages - {"index.md"} - linked
    assert not pages - set((ROOT / "mkdocs.yml").read_text(encoding="utf-8").split())
