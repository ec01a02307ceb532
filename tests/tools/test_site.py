"""The site's links and anchors, and that it loads nothing from other servers."""

from pathlib import Path

import pytest

from tests.docs.commands import ROOT
from tests.support.servers import HttpServer, Reply
from tools.site.check import ask, external_links, find_broken, find_remote, read_pages
from tools.site.hooks import REPOSITORY, ROOT_PAGES, place_link, place_links, slugify


@pytest.fixture
def site(tmp_path: Path) -> Path:
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


def _faults(site: Path) -> list[str]:
    pages = read_pages(site)
    return [*find_broken(pages, site), *find_remote(pages, site)]


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
    (told,) = _faults(site)
    assert (told.partition(": ")[0], fault in told) == ("bad.html", True)


def test_styles_and_scripts_load_nothing_from_elsewhere(site: Path) -> None:
    """Fonts in styles and delivery networks in scripts are reported; plain links are not."""
    assert _faults(site) == []
    (site / "t.css").write_text("@font-face { src: url('https://fonts.gstatic.com/f.woff2') }")
    (site / "t.js").write_text('load("https://unpkg.com/mermaid@11/m.js")')
    assert sorted(told.split("https:")[0] for told in _faults(site)) == [
        "t.css: loads ",
        "t.js: loads ",
    ]


def test_external_links_are_asked_for(site: Path) -> None:
    """An existing page and one that refuses programs are right; a missing one is reported."""
    assert external_links(read_pages(site).values()) == ["https://e.example/"]
    statuses = {"/there": 200, "/refused": 403}
    with HttpServer(lambda asked: Reply(statuses.get(asked.path, 404))) as server:
        assert [ask(f"{server.url}/{name}") for name in ("there", "refused", "gone")] == [
            None,
            None,
            f"{server.url}/gone: 404",
        ]
    assert "refused" in (ask("http://127.0.0.1:1/x") or "")


@pytest.mark.parametrize(
    ("target", "source", "placed"),
    [
        ("cost.md#sizes", "docs/index.md", "cost.md#sizes"),
        ("../cost.md", "docs/howto/buckets-and-keys.md", "../cost.md"),
        ("../CONTRIBUTING.md", "docs/index.md", "contributing/index.md"),
        ("docs/design.md#words", "CONTRIBUTING.md", "../design.md#words"),
        ("../Makefile", "docs/index.md", f"{REPOSITORY}Makefile"),
        ("../bench/README.md#m", "docs/cost.md", f"{REPOSITORY}bench/README.md#m"),
        ("../none.py", "docs/index.md", "../none.py"),
        ("https://e.example/../x", "docs/design.md", "https://e.example/../x"),
    ],
)
def test_links_are_placed(target: str, source: str, placed: str) -> None:
    """Pages link to pages, to the repository's files, or stay as they are."""
    assert place_link(target, source, lambda path: (ROOT / path).exists()) == placed


def test_links_in_code_stay() -> None:
    """A code block shows what its author wrote."""
    placed = place_links(
        "[a](../Makefile)\n\n```md\n[a](../Makefile)\n```\n", "docs/index.md", lambda _: True
    )
    assert placed == f"[a]({REPOSITORY}Makefile)\n\n```md\n[a](../Makefile)\n```\n"


def test_anchors_are_those_of_github() -> None:
    """Letters, digits, underscores and hyphens stay; and the site's pages of the root exist."""
    assert slugify("What `max_x` is -- and 2 more!", "-") == "what-max_x-is----and-2-more"
    assert all((ROOT / name).is_file() for name in ROOT_PAGES)
