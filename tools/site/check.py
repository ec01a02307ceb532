"""``python -m tools.site.check build/site``: links of the built site, and what it would load.

Every internal link must lead to a file, and to an element with its anchor. Nothing may be loaded
from another server when a page is viewed. ``--external`` asks for each external link instead,
which needs a network; a server that refuses programs (401, 403, 405, 429) counts as there.
"""

import argparse
import re
import sys
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

SECONDS = 20.0
THREADS = 8
REFUSALS = {401, 403, 405, 429}
REMOTE = re.compile(r"(?:https?:)?//", re.IGNORECASE)
IN_STYLES = re.compile(r"""(?:url\(\s*["']?|@import\s+["'])((?:https?:)?//[^"')\s]+)""")
# In scripts an address may be a name (of SVG) or a remark: those of delivery networks are not.
IN_SCRIPTS = re.compile(
    r"https?://(?:[\w.-]*\b(?:unpkg|jsdelivr|cdnjs|googleapis|gstatic|cdn)\b|api\.)[\w./@-]*"
)
# What a browser loads by itself; links of `<a>` it only follows when it is told to.
LOADED_BY = {
    ("script", "src"),
    ("img", "src"),
    ("img", "srcset"),
    ("source", "src"),
    ("source", "srcset"),
    ("iframe", "src"),
    ("video", "src"),
    ("audio", "src"),
    ("object", "data"),
    ("embed", "src"),
    ("form", "action"),
}
LOADED_RELATIONS = {"stylesheet", "icon", "preload", "prefetch", "preconnect", "dns-prefetch"}


@dataclass(slots=True)
class Page:
    """The ids and links of a page."""

    anchors: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.page = Page()
        self._in_style = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self._in_style = tag == "style"
        self.page.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.page.links.append(given["href"])
        if tag == "link" and LOADED_RELATIONS & set(given.get("rel", "").split()):
            self.page.loaded.append(given.get("href", ""))
        self.page.loaded += [value for name, value in given.items() if (tag, name) in LOADED_BY]
        self.page.loaded += IN_STYLES.findall(given.get("style", ""))

    def handle_data(self, data: str) -> None:
        if self._in_style:
            self.page.loaded += IN_STYLES.findall(data)


def read_pages(site: Path) -> dict[Path, Page]:
    """Read all pages of the site, by their absolute paths."""
    pages = {}
    for path in sorted(site.resolve().rglob("*.html")):
        reader = _Reader()
        reader.feed(path.read_text(encoding="utf-8"))
        pages[path] = reader.page
    return pages


def find_broken(pages: Mapping[Path, Page], site: Path) -> Iterator[str]:
    """Yield a sentence for each internal link that leads nowhere."""
    root = site.resolve()
    for path, page in pages.items():
        name = path.relative_to(root)
        for link in [*page.links, *page.loaded]:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc or not link:
                continue
            target = _file_of(unquote(parts.path), path, root)
            if not target.is_file():
                yield f"{name}: {link} leads to no file"
            elif (
                parts.fragment
                and target in pages
                and unquote(parts.fragment) not in pages[target].anchors
            ):
                yield f"{name}: {link} leads to no anchor of its page"


def _file_of(path: str, page: Path, root: Path) -> Path:
    if not path:
        return page
    target = root / path.lstrip("/") if path.startswith("/") else page.parent / path
    target = target.resolve()
    return target / "index.html" if target.is_dir() else target


def find_remote(pages: Mapping[Path, Page], site: Path) -> Iterator[str]:
    """Yield a sentence for each thing that a browser would load from another server."""
    root = site.resolve()
    for path, page in pages.items():
        for loaded in page.loaded:
            if REMOTE.match(loaded):
                yield f"{path.relative_to(root)}: loads {loaded}"
    for suffix, pattern in ((".css", IN_STYLES), (".js", IN_SCRIPTS)):
        for path in sorted(root.rglob(f"*{suffix}")):
            for loaded in pattern.findall(path.read_text(encoding="utf-8")):
                yield f"{path.relative_to(root)}: loads {loaded}"


def external_links(pages: Iterable[Page]) -> list[str]:
    """Return all links to other servers, once each, without their anchors."""
    links = {link.partition("#")[0] for page in pages for link in page.links}
    return sorted(link for link in links if REMOTE.match(link))


def ask(link: str) -> str | None:
    """Return what is wrong with an external link, None where a server has it."""
    request = urllib.request.Request(link, headers={"User-Agent": "s3unzip-docs"})  # noqa: S310 - http(s) alone
    try:
        with urllib.request.urlopen(request, timeout=SECONDS):  # noqa: S310 - http(s) alone
            return None
    except urllib.error.HTTPError as error:
        return None if error.code in REFUSALS else f"{link}: {error.code}"
    except (OSError, ValueError) as error:
        return f"{link}: {error}"


def main() -> int:
    """Print what is wrong; return 1 where something is."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("site", type=Path)
    parser.add_argument("--external", action="store_true", help="ask for the external links")
    arguments = parser.parse_args()
    pages = read_pages(arguments.site)
    if arguments.external:
        links = external_links(pages.values())
        with ThreadPoolExecutor(THREADS) as pool:
            faults = [fault for fault in pool.map(ask, links) if fault]
        count = f"{len(links)} external links"
    else:
        faults = [*find_broken(pages, arguments.site), *find_remote(pages, arguments.site)]
        count = f"{sum(len(page.links) for page in pages.values())} links"
    for fault in faults:
        sys.stdout.write(f"error: {fault}\n")
    sys.stdout.write(f"{len(pages)} pages, {count}: {len(faults)} faults\n")
    return 1 if faults or not pages else 0


if __name__ == "__main__":
    sys.exit(main())
