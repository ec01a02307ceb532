"""The report page: what is in it, what can never be in it, how large it is."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from s3unzip.model import Location, Options
from s3unzip.settling.page import CODES, encode_safely
from tests.unit.settling.reports import (
    HOSTILE,
    REPORTS,
    failing,
    hostile_failures,
    made_up,
    page,
    shown,
)

LIMIT = 2_000_000  # bytes


class Elements(HTMLParser):
    """Collects what an HTML parser sees: elements with their attributes, and scripts' text."""

    def __init__(self, page: bytes) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {"script": [], "style": []}
        self._within = ""
        self.feed(page.decode())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element."""
        self.seen.append((tag, dict(attrs)))
        self._within = tag

    def handle_data(self, data: str) -> None:
        """Note the text of scripts and styles."""
        if self._within in self.texts:
            self.texts[self._within].append(data)

    def handle_endtag(self, tag: str) -> None:
        """Leave an element."""
        self._within = ""


@pytest.mark.parametrize("name", REPORTS)
def test_data_never_changes_the_structure(name: str) -> None:
    """Whatever a run says, the page has the same elements and attributes."""
    assert Elements(page(REPORTS[name])).seen == Elements(page(REPORTS["small"])).seen


def test_hostile_strings_are_inert_and_whole() -> None:
    """Names that attack the page arrive as data, letter by letter, and as nothing else."""
    block = Elements(page(failing(hostile_failures(8)))).texts["script"][0]
    found = [key for key, *_ in json.loads(block)["failures"]]
    assert all(text in key for key, text in zip(found, HOSTILE, strict=True))
    assert not re.search("[<>&\u2028\u2029]", block)


@settings(max_examples=60)
@given(st.text())
def test_encoding_is_the_same_value_and_inert(text: str) -> None:
    """Any text survives, and no character that HTML or a script could act on is left."""
    encoded = encode_safely({"text": text})
    assert json.loads(encoded) == {"text": text}
    assert not re.search("[<>&\u2028\u2029]", encoded.decode())


def test_policy_names_exactly_the_script_and_the_style() -> None:
    """The Content-Security-Policy allows the inline script and style by hash, and no address."""
    found = Elements(page(REPORTS["small"]))
    policy = next(
        attributes["content"] or ""
        for tag, attributes in found.seen
        if attributes.get("http-equiv") == "Content-Security-Policy"
    )
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))

    def hashed(text: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    (_, script), (style,) = found.texts["script"], found.texts["style"]
    assert rules["default-src"] == "'none'"
    assert (rules["script-src"], rules["style-src"]) == (hashed(script), hashed(style))
    assert not re.search(r"https?:|unsafe|\*", policy)


def test_nothing_is_loaded() -> None:
    """No element loads anything from outside the page; one link leads to the project."""
    for tag, attributes in Elements(page(REPORTS["small"])).seen:
        assert "src" not in attributes, tag
        outside = (attributes.get("href") or "#").startswith(("http", "//"))
        assert not outside or (tag, attributes["id"]) == ("a", "version")


def test_the_size_is_bounded() -> None:
    """A million members take no more than ten; 1,000 long hostile names stay under the limit."""
    assert len(page(REPORTS["million"])) < LIMIT / 40
    report = failing(hostile_failures())
    assert 0 < len(shown(report)["failures"]) < 1_000
    assert len(page(report)) < LIMIT


def test_the_same_report_gives_the_same_bytes() -> None:
    """A repeated report step rewrites the page that it wrote."""
    assert page(failing()) == page(failing())


def test_codes_beyond_the_list_are_counted_together() -> None:
    """Many different codes end in one line with the rest."""
    report = replace(made_up("x", 1, 1), warnings={f"code-{n:03d}": 1 for n in range(CODES + 7)})
    warnings = shown(report)["warnings"]
    assert len(warnings) == CODES + 1
    assert warnings[-1][:2] == ["7 other codes", 7]


def test_what_identifies_a_run_is_in_the_details() -> None:
    """The archive's version and the options that are not the defaults; no signature of an URL."""
    signed = Location("https", "example.com", "a/b.zip?X-Amz-Signature=0123")
    data = shown(replace(failing(), source=signed, options=Options(include=("*.a", "*.b"))))
    assert ["Option include", "*.a, *.b"] in data["details"]
    assert {"Run", "Archive size", "ETag"} <= dict(data["details"]).keys()
    assert data["archive"] == "b.zip"
    assert "0123" not in data["source"]
