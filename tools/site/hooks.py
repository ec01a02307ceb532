"""Hooks of MkDocs (mkdocs.yml): pages of the checkout's root, links to its files, anchors.

MkDocs knows only what is below docs/. The pages that GitHub wants in the root, such as
CONTRIBUTING.md, become pages of the site too. A link from a page to another file of the checkout
becomes a link to that file in the repository. Anchors are made as GitHub makes them, so that one
link works in both places.

MkDocs loads this file by its path, in an environment that has only MkDocs.
"""

import posixpath
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
REPOSITORY = "https://github.com/s3unzip/s3unzip/blob/main/"

# Files of the root and what their pages are called below docs/.
ROOT_PAGES = {
    "CONTRIBUTING.md": "contributing/index.md",
    "SECURITY.md": "contributing/security.md",
    "CODE_OF_CONDUCT.md": "contributing/conduct.md",
    "CHANGELOG.md": "contributing/changelog.md",
}

# Addresses in the theme's scripts: diagrams and polyfills of others, and the count of stars. No
# page of ours needs them, so that they need not be reachable.
REMOTE_SCRIPTS = ("https://unpkg.com/", "https://api.github.com/")

FENCED = re.compile(r"(^ *```.*?^ *```$)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"(\[[^\]]*\]\()([^)\s]+)(\))")
OUTSIDE = re.compile(r"[a-z][a-z+.-]*:|#|/")


def slugify(text: str, separator: str) -> str:
    """Return the anchor that GitHub makes of a heading."""
    return re.sub(r"[^\w\- ]", "", text.lower()).strip().replace(" ", separator)


def place_link(target: str, source: str, is_file: Callable[[str], bool]) -> str:
    """Return a link as a page of the site needs it.

    Args:
        target: the link as it is written.
        source: the page's path from the root of the checkout.
        is_file: tells whether such a path, from the root, exists.

    A link that leads nowhere stays as it is: MkDocs warns of it.
    """
    if OUTSIDE.match(target):
        return target
    path, hash_, anchor = target.partition("#")
    wanted = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
    page = _page_of(source)
    found = _page_of(wanted)
    if found.startswith("../"):
        return REPOSITORY + wanted + hash_ + anchor if is_file(wanted) else target
    return posixpath.relpath(found, posixpath.dirname(page) or ".") + hash_ + anchor


def _page_of(path: str) -> str:
    """Return where a file of the checkout is below docs/; ``../`` begins one that is not there."""
    return ROOT_PAGES.get(path) or posixpath.relpath(path, "docs")


def place_links(text: str, source: str, is_file: Callable[[str], bool]) -> str:
    """Rewrite the links of a page, except in its code blocks."""

    def replaced(match: re.Match[str]) -> str:
        return match[1] + place_link(match[2], source, is_file) + match[3]

    parts = FENCED.split(text)
    return "".join(
        part if index % 2 else LINK.sub(replaced, part) for index, part in enumerate(parts)
    )


def on_config(config: Any) -> Any:
    """Make anchors as GitHub does."""
    config.mdx_configs["toc"]["slugify"] = slugify
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the pages of the root."""
    from mkdocs.structure.files import File  # noqa: PLC0415 - only MkDocs has it

    for source, page in ROOT_PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Rewrite the links of a page."""
    sources = {page_uri: source for source, page_uri in ROOT_PAGES.items()}
    uri = page.file.src_uri
    source = sources.get(uri, f"docs/{uri}")
    return place_links(markdown, source, lambda path: (ROOT / path).exists())


def on_post_build(config: Any) -> None:
    """Take the addresses of other servers out of the theme's scripts."""
    for script in Path(config.site_dir).rglob("*.js"):
        text = script.read_text(encoding="utf-8")
        for address in REMOTE_SCRIPTS:
            text = text.replace(address, "about:blank#")
        script.write_text(text, encoding="utf-8")
