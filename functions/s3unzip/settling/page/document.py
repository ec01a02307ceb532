"""Writes `PageData` as one HTML file that loads nothing from a network.

Text from an archive reaches the page only as JSON in a data block, and the page's script inserts it
only as text nodes. The Content-Security-Policy lists the scripts and styles by their hashes, so
injected markup could neither run nor load anything.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from s3unzip.settling.page.data import PageData

_SCRIPTS = ("vendor/uplot/uPlot.iife.min.js", "assets/text.js", "assets/charts.js",
            "assets/failures.js", "assets/page.js")  # fmt: skip
_STYLES = ("vendor/uplot/uPlot.min.css", "assets/page.css")
_DATA = b"@@DATA@@"


def render_page(data: PageData) -> bytes:
    """Return ``report.html``: UTF-8, self-contained, the same bytes for the same data."""
    before, after = _frame()
    return before + encode_safely(data) + after


@cache
def _frame() -> tuple[bytes, bytes]:
    """Return the page before and after its data."""
    scripts = [_asset(name) for name in _SCRIPTS]
    styles = [_asset(name) for name in _STYLES]
    policy = (
        f"default-src 'none'; script-src {_hashes(scripts)}; style-src {_hashes(styles)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    page = _asset("assets/page.html")
    # Split at the data's place first, so that the data is never searched for a placeholder.
    before, after = page.split(_DATA.decode())
    fill = {
        "@@POLICY@@": policy,
        "@@LICENSE@@": _asset("vendor/uplot/LICENSE").replace("--", "- -"),
        "@@STYLES@@": "\n".join(f"<style>{style}</style>" for style in styles),
        "@@SCRIPTS@@": "\n".join(f"<script>{script}</script>" for script in scripts),
    }
    for mark, text in fill.items():
        before, after = before.replace(mark, text), after.replace(mark, text)
    return before.encode(), after.encode()


def _asset(name: str) -> str:
    # Browsers hash the text after turning CR LF into LF.
    path = resources.files("s3unzip.settling.page").joinpath(*name.split("/"))
    return path.read_text(encoding="utf-8").replace("\r\n", "\n")


def _hashes(texts: list[str]) -> str:
    """Return the CSP source list that allows exactly `texts` inline."""
    digests = (hashlib.sha256(text.encode()).digest() for text in texts)
    return " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)


# An HTML parser leaves a script element at "</script" and changes its state at "<!--"
# (HTML Standard, 13.1.2.1 and 13.2.5.4): without "<" neither can occur. "&" and ">" matter only if
# somebody pastes the page into XML, U+2028 and U+2029 only if somebody pastes it into a script.
_ESCAPES = {
    b"<": b"\\u003c",
    b">": b"\\u003e",
    b"&": b"\\u0026",
    "\u2028".encode(): b"\\u2028",
    "\u2029".encode(): b"\\u2029",
}


def encode_safely(value: object) -> bytes:
    """Return `value` as JSON without characters that mean something in HTML."""
    text = msgspec.json.encode(value)
    for raw, escaped in _ESCAPES.items():
        text = text.replace(raw, escaped)
    return text


def clip(text: str, limit: int) -> str:
    """Return `text` as valid UTF-8 of at most `limit` characters, cut in the middle."""
    text = text.encode("utf-8", "replace").decode("utf-8")
    if len(text) <= limit:
        return text
    head = limit // 2
    return f"{text[:head]}…{text[head + 1 - limit :]}"
