"""The site's links and anchors, and that it loads nothing from other servers."""

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from tests.docs.commands import ROOT
from tools.site.check import ask, external_links, find_broken, find_remote, read_pages
from tools.site.hooks import REPOSITORY, ROOT_PAGES, place_link, place_links, slugify


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A site of two pages, without a fault."""
    (tmp_path / "a").mkdir()
    (tmp_path / "index.html").write_text(
        '<link rel="stylesheet" href="s.css"><link rel="canonical" href="https://s3unzip.example/">'
        '<h1 id="top">T</h1><a href="a/">a</a><a href="#top">t</a><a href="https://e.example/#x">e</a>'
    )
    (tmp_path / "a" / "index.html").write_text(
        '<h2 id="caf%C3%A9 x">A</h2><h2 id="two">B</h2>'
        '<a href="../index.html#top">up</a><a href="?q#two">b</a><a href="/a/index.html">c</a>'
    )
    (tmp_path / "s.css").write_text("a { background: url(data:image/png;base64,AA==) }")
    (tmp_path / "s.js").write_text('n = "http://www.w3.org/2000/svg"')
    return tmp_path


def faults(site: Path) -> list[str]:
    """Return what the check says."""
    pages = read_pages(site)
    return [*find_broken(pages, site), *find_remote(pages, site)]


def test_a_right_site_has_no_faults(site: Path) -> None:
    """Folders have an index, and plain links may lead to other servers."""
    assert faults(site) == []


@pytest.mark.parametrize(
    ("html", "fault"),
    [
        ('<a href="b.html">', "leads to no file"),
        ('<a href="a/#three">', "leads to no anchor"),
        ('<a href="#none">', "leads to no anchor"),
        ('<img src="none.png">', "leads to no file"),
        ('<script src="https://cdn.example/x.js">', "loads https://cdn.example/x.js"),
        ('<img src="//img.example/x.png">', "loads //img.example/x.png"),
        ('<link rel="preconnect" href="https://fonts.example">', "loads https://fonts.example"),
        ('<style>@import "https://fonts.example/c.css"</style>', "loads https://fonts.example/c"),
        ('<p style="background:url(https://i.example/p)">', "loads https://i.example/p"),
    ],
)
def test_each_fault_of_a_page_is_told(site: Path, html: str, fault: str) -> None:
    """A link or anchor that leads nowhere, and all that a browser would load from elsewhere."""
    (site / "bad.html").write_text(html)
    (told,) = faults(site)
    assert told.startswith("bad.html: ")
    assert fault in told


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("t.css", "@font-face { src: url('https://fonts.gstatic.com/f.woff2') }"),
        ("t.js", 'load("https://unpkg.com/mermaid@11/m.js")'),
    ],
)
def test_styles_and_scripts_load_nothing_from_elsewhere(site: Path, name: str, text: str) -> None:
    """Fonts in styles and delivery networks in scripts are reported."""
    (site / name).write_text(text)
    (told,) = faults(site)
    assert told.startswith(f"{name}: loads https://")


class _Server(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response({"/there": 200, "/refused": 403}.get(self.path, 404))
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        pass


@pytest.fixture
def server() -> Iterator[str]:
    """A server that has one page and refuses another."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Server) as running:
        Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_address[1]}"
        running.shutdown()


def test_external_links_are_asked_for(site: Path, server: str) -> None:
    """An existing page and one that refuses programs are right; a missing one is reported."""
    assert external_links(read_pages(site).values()) == ["https://e.example/"]
    assert ask(f"{server}/there") is None
    assert ask(f"{server}/refused") is None
    assert ask(f"{server}/gone") == f"{server}/gone: 404"
    assert "refused" in (ask("http://127.0.0.1:1/x") or "")


@pytest.mark.parametrize(
    ("target", "source", "placed"),
    [
        ("cost.md#sizes", "docs/index.md", "cost.md#sizes"),
        ("../cost.md", "docs/howto/buckets-and-keys.md", "../cost.md"),
        ("../CONTRIBUTING.md", "docs/index.md", "contributing/index.md"),
        ("docs/design.md#words", "CONTRIBUTING.md", "../design.md#words"),
        ("CHANGELOG.md", "CONTRIBUTING.md", "changelog.md"),
        ("../Makefile", "docs/index.md", f"{REPOSITORY}Makefile"),
        ("../bench/README.md#m", "docs/cost.md", f"{REPOSITORY}bench/README.md#m"),
        ("../none.py", "docs/index.md", "../none.py"),
        ("#words", "docs/design.md", "#words"),
        ("https://e.example/../x", "docs/design.md", "https://e.example/../x"),
    ],
)
def test_links_are_placed(target: str, source: str, placed: str) -> None:
    """Pages link to pages, to the repository's files, or stay as they are."""
    assert place_link(target, source, lambda path: (ROOT / path).exists()) == placed


def test_links_in_code_stay() -> None:
    """A code block shows what its author wrote."""
    text = "[a](../Makefile)\n\n```md\n[a](../Makefile)\n```\n"
    placed = place_links(text, "docs/index.md", lambda _: True)
    assert placed == f"[a]({REPOSITORY}Makefile)\n\n```md\n[a](../Makefile)\n```\n"


def test_anchors_are_those_of_github() -> None:
    """Letters, digits, underscores and hyphens stay; spaces become hyphens."""
    assert slugify("What `max_x` is -- and 2 more!", "-") == "what-max_x-is----and-2-more"


def test_the_pages_of_the_root_are_there() -> None:
    """What the site takes from the root exists."""
    assert all((ROOT / name).is_file() for name in ROOT_PAGES)
