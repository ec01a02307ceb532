"""The report page: what is in it, how large it is; and the command that a report offers next."""

import base64
import hashlib
import re
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings, strategies as st
from msgspec.structs import replace

from s3unzip.explanations import NOT_FROM_CHECKS, advise
from s3unzip.model import GzipForm, Location, OnConflict, Options, Report, Verdict
from s3unzip.object_properties import ObjectProperties
from s3unzip.settling.markup import untrusted
from s3unzip.settling.next_command import MAX_COMMAND, next_command, repeat_command
from s3unzip.stores.config import StoreConfig
from s3unzip.zip import CHECKS
from tests.support.reports import (
    HOSTILE,
    REPORTS,
    failing,
    hostile_failures,
    page,
)

MAX_PAGE = 2_000_000  # bytes


class Elements(HTMLParser):
    """Collects what an HTML parser sees: elements with their attributes, and the text in each."""

    def __init__(self, page: bytes) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self._open: list[list[str]] = []
        self.feed(page.decode())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in {"meta", "link", "input"}:
            self._open.append([])

    def handle_data(self, data: str) -> None:
        for parts in self._open:
            parts.append(data)

    def handle_endtag(self, tag: str) -> None:
        self.texts.setdefault(tag, []).append("".join(self._open.pop()))


def _spell(value: str) -> str:
    return "".join(f"\\u{ord(c):04x}" if c in "\0\n\r\u2028\u2029\u202e" else c for c in value)


def _unspell(value: str) -> str:
    return re.sub(r"\\u([0-9a-f]{4})", lambda match: chr(int(match[1], 16)), value)


def test_hostile_names_are_text_and_whole() -> None:
    """Names that attack the page arrive letter by letter, and add no element of their own."""
    elements = Elements(page(failing(hostile_failures(8))))
    keys = [text for text in elements.texts["th"] if text.startswith("import/")]
    assert all(_spell(name) in key for key, name in zip(keys, HOSTILE, strict=True))
    assert [tag for tag, _ in elements.seen if tag in {"script", "img", "iframe"}] == ["script"]


@pytest.mark.parametrize("name", REPORTS)
def test_no_attribute_runs_or_loads_anything(name: str) -> None:
    """No element has a handler, a style or an address of its own; one link leads to the project."""
    for tag, attributes in Elements(page(REPORTS[name])).seen:
        assert not {"src", "style"} & attributes.keys(), tag
        assert not any(attribute.startswith("on") for attribute in attributes), tag
        outside = (attributes.get("href") or "#").startswith(("http", "//"))
        assert not outside or (tag, attributes["id"]) == ("a", "version")


@settings(max_examples=60)
@given(st.text(st.characters(codec="utf-8")))
def test_any_text_survives_as_text(value: str) -> None:
    """An HTML parser reads the characters back; the hidden ones are spelled out."""
    elements = Elements(untrusted(value).encode())
    assert {tag for tag, _ in elements.seen} <= {"bdi", "span"}
    (content,) = elements.texts["bdi"]
    assert _unspell(content) == _unspell(value)
    assert not re.search("[\u2028\u202e\u0000]", content)


def test_policy_names_exactly_the_script_and_the_style() -> None:
    """The Content-Security-Policy allows the inline script and style by hash, and no address."""
    elements = Elements(page(REPORTS["small"]))
    policy = next(
        attributes["content"] or ""
        for tag, attributes in elements.seen
        if attributes.get("http-equiv") == "Content-Security-Policy"
    )
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    hashes = {}
    for tag in ("script", "style"):
        (content,) = elements.texts[tag]
        hashes[f"{tag}-src"] = (
            f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"
        )
    assert rules.items() >= {"default-src": "'none'", **hashes}.items()
    assert not re.search(r"https?:|unsafe|\*", policy)


def test_the_size_is_bounded() -> None:
    """A million members take no more than ten; 1,000 long hostile names stay under the limit."""
    assert len(page(REPORTS["million"])) < MAX_PAGE / 40
    hostile = page(failing(hostile_failures()))
    assert 0 < hostile.count(b'<tr role="row" data-reason') < 1_000
    assert len(hostile) < MAX_PAGE


def test_the_details_have_version_and_options_of_a_run() -> None:
    """The archive's version and the options that are not the defaults; no signature of an URL."""
    report = replace(
        failing(),
        source=Location("https", "example.com", "a/b.zip?X-Amz-Signature=SIGNED"),
        options=Options(include=("*.a", "*.b")),
    )
    elements = Elements(page(report))
    rows = elements.texts["tr"]
    assert {"Option include*.a, *.b", f"Run{report.run}"} <= set(rows)
    assert any(row.startswith("ETag") for row in rows)
    assert (elements.texts["h1"], b"SIGNED" in page(report)) == (["b.zip"], False)


def test_a_question_mark_in_a_key_is_part_of_the_source() -> None:
    """Only a URL has a query."""
    elements = Elements(page(replace(failing(), source=Location("s3", "in", "why?.zip"))))
    assert "s3://in/why?.zip" in elements.texts["dd"]


SOURCE, TARGET = Location("s3", "in", "my archive.zip"), Location("s3", "out", "to/")
REACHED = StoreConfig(
    endpoint_url="http://s3.local:9000",
    profile="a b",
    destination_region="eu-west-1",  # no option of a command says these two
    destination_owner="111122223333",
)
RUN_AGAIN = "run 's3://in/my archive.zip' s3://out/to/ --on-conflict skip-unchanged"
COMMANDS = {
    "store-refused": "s3unzip resume RUN --failed",
    "wrong-password": "s3unzip resume RUN --failed",
    "aes-mac-mismatch": "s3unzip resume RUN --failed",
    "encrypted": "s3unzip run",
}


def _failed(
    *codes: str, source: Location = SOURCE, options: Options | None = None, members: int = 6
) -> Report:
    return Report(
        run="run-1",
        verdict=Verdict.COMPLETED_WITH_ERRORS,
        source=source,
        pin=None,
        destination=TARGET,
        options=options or Options(),
        reasons=dict.fromkeys(codes, members),
    )


@pytest.mark.parametrize("code", sorted(CHECKS.keys() | NOT_FROM_CHECKS.keys()))
def test_advice_and_next_command_agree(code: str) -> None:
    """For each code, the command in the advice is the one that is offered."""
    offered = next_command(_failed(code)) or ""
    if code in COMMANDS:
        assert COMMANDS[code] in advise(code)
        assert offered.startswith(COMMANDS[code].partition(" RUN")[0])
    else:
        assert offered == "s3unzip show run-1 --failures"


SHOW = "s3unzip show run-1 --failures"
RESUME = "s3unzip resume run-1 --failed"
OPTIONS = "--endpoint-url http://s3.local:9000 --profile 'a b'"
# By what fails: the report, how the stores are reached, the command on this machine, and that in
# an environment, whose password is in a secret.
NEXT: dict[str, tuple[Report, StoreConfig | None, str | None, str | None]] = {
    "a damaged member": (_failed("crc-mismatch"), None, SHOW, f"{SHOW} --env dev"),
    "a store that refuses": (
        _failed("store-refused", "crc-mismatch"),
        None,
        RESUME,
        f"{RESUME} --env dev",
    ),
    "a wrong password": (
        _failed("wrong-password"),
        None,
        f"{RESUME} --password-file FILE",
        f"{RESUME} --env dev",
    ),
    "no cipher that is known": (_failed("strong-encryption"), None, SHOW, f"{SHOW} --env dev"),
    "no password": (
        _failed("encrypted"),
        None,
        f"s3unzip {RUN_AGAIN} --password-file FILE",
        f"{SHOW} --env dev",
    ),
    # A new run needs the options again, a run that is continued only its environment does.
    "no password, stores that are far": (
        _failed("encrypted"),
        REACHED,
        f"s3unzip {RUN_AGAIN} {OPTIONS} --password-file FILE",
        f"{SHOW} --env dev {OPTIONS}",
    ),
    "a store that refuses and is far": (
        _failed("store-refused"),
        REACHED,
        RESUME,
        f"{RESUME} --env dev {OPTIONS}",
    ),
    # No password that was given helps, and nobody types a thousand names: failures are shown.
    "a password that does not help": (
        _failed("encrypted", options=Options(password_ref="prompt")),
        None,
        SHOW,
        f"{SHOW} --env dev",
    ),
    "too many names": (
        _failed("encrypted", options=Options(names=("n" * 9,) * MAX_COMMAND)),
        None,
        SHOW,
        f"{SHOW} --env dev",
    ),
    # The report names five members of each reason; only more than these are worth a list.
    "as many as the report names": (_failed("crc-mismatch", members=5), None, None, None),
    "an archive that was replaced": (
        replace(_failed(), verdict=Verdict.SOURCE_CHANGED),
        REACHED,
        f"s3unzip {RUN_AGAIN} {OPTIONS}",
        None,
    ),
}


@pytest.mark.parametrize("case", NEXT)
def test_the_next_command_follows_from_the_reason(case: str) -> None:
    """On this machine and in an environment, wherever the stores are."""
    report, stores, here, there = NEXT[case]
    commands = [next_command(report, environment, stores) for environment in (None, "dev")]
    assert commands == [here, there]


def test_all_options_are_repeated() -> None:
    """Values with spaces are quoted; objects that are there are left alone."""
    options = Options(
        key_template="a b/{member}",
        on_conflict=OnConflict.NEVER,
        include=("*.csv", "x"),
        exclude=("y",),
        names=("n",),
        limit=3,
        strip_components=1,
        lenient=True,
        encoding="cp437",
        as_gzip=GzipForm.SUFFIX,
        trust_crc=True,
        nested_depth=2,
        marker=True,
        objects=ObjectProperties(
            "GLACIER_IR", "no-store", {"*": "a/b"}, {"m": "1"}, {"t": "2"}, "private"
        ),
    )
    assert repeat_command(_failed(options=options)) == (
        "s3unzip run 's3://in/my archive.zip' s3://out/to/ --on-conflict never "
        "--key-template 'a b/{member}' --include '*.csv' --include x --exclude y "
        "--strip-components 1 --member n --limit 3 --lenient --encoding cp437 --as-gzip suffix "
        "--nested 2 --marker --storage-class GLACIER_IR --cache-control no-store "
        "--content-type '*=a/b' --metadata m=1 --tag t=2 --acl private"
    )
