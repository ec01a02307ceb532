"""The report page: what is in it, how large it is; and the command that a report offers next."""

import base64
import hashlib
import re
from html.parser import HTMLParser

import msgspec
import pytest
from hypothesis import given, settings, strategies as st
from msgspec.structs import replace

from s3unzip.explanations import OTHER, Help, explain, find_help
from s3unzip.model import GzipForm, Location, OnConflict, Options, Report, Verdict
from s3unzip.object_properties import ObjectProperties
from s3unzip.settling.markup import text
from s3unzip.settling.next_command import MAX_COMMAND, next_command, repeat_command
from s3unzip.settling.page_sections import MAX_CODES
from s3unzip.stores.config import StoreConfig
from s3unzip.zip import CHECKS
from tests.support.reports import (
    HOSTILE,
    REPORTS,
    failing,
    hostile_failures,
    made_up,
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


def test_hostile_names_are_text_and_whole() -> None:
    """Names that attack the page arrive letter by letter, and add no element of their own."""
    elements = Elements(page(failing(hostile_failures(8))))
    keys = [text for text in elements.texts["th"] if text.startswith("import/")]
    assert all(_spell(name) in key for key, name in zip(keys, HOSTILE, strict=True))
    assert {"script", "img", "iframe"} & {tag for tag, _ in elements.seen} == {"script"}
    assert len(elements.texts["script"]) == 1


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
    elements = Elements(text(value).encode())
    assert {tag for tag, _ in elements.seen} <= {"bdi", "span"}
    (content,) = elements.texts["bdi"]
    spelled = re.sub(r"\\u([0-9a-f]{4})", lambda match: chr(int(match[1], 16)), content)
    assert spelled == re.sub(r"\\u([0-9a-f]{4})", lambda match: chr(int(match[1], 16)), value)
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

    def hashed(text: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    (script,) = elements.texts["script"]
    (style,) = elements.texts["style"]
    assert rules["default-src"] == "'none'"
    assert (rules["script-src"], rules["style-src"]) == (hashed(script), hashed(style))
    assert not re.search(r"https?:|unsafe|\*", policy)


def test_the_size_is_bounded() -> None:
    """A million members take no more than ten; 1,000 long hostile names stay under the limit."""
    assert len(page(REPORTS["million"])) < MAX_PAGE / 40
    hostile = page(failing(hostile_failures()))
    assert 0 < hostile.count(b'<tr role="row" data-reason') < 1_000
    assert len(hostile) < MAX_PAGE


def test_the_same_report_gives_the_same_bytes() -> None:
    """A repeated report step rewrites the page that it wrote."""
    assert page(failing()) == page(failing())


def test_codes_beyond_the_list_are_counted_together() -> None:
    """Many different codes end in one line for all that are not listed."""
    warnings = {f"code-{n:03d}": 1 for n in range(MAX_CODES + 7)}
    rows = Elements(page(replace(made_up("x", 1, 1), warnings=warnings))).texts["tr"]
    assert len([row for row in rows if "code-0" in row]) == MAX_CODES
    assert " 7 other codes7" in rows


def test_the_details_have_version_and_options_of_a_run() -> None:
    """The archive's version and the options that are not the defaults; no signature of an URL."""
    signed = Location("https", "example.com", "a/b.zip?X-Amz-Signature=SIGNED")
    report = replace(failing(), source=signed, options=Options(include=("*.a", "*.b")))
    elements = Elements(page(report))
    rows = elements.texts["tr"]
    assert "Option include*.a, *.b" in rows
    assert {row.partition(report.run)[0] for row in rows if report.run in row} >= {"Run"}
    assert any(row.startswith("ETag") for row in rows)
    assert elements.texts["h1"] == ["b.zip"]
    assert b"SIGNED" not in page(report)


SOURCE, TARGET = Location("s3", "in", "my archive.zip"), Location("s3", "out", "to/")
REACHED = StoreConfig(
    endpoint_url="http://s3.local:9000",
    profile="a b",
    destination_region="eu-west-1",  # no option of a command says these two
    destination_owner="111122223333",
)
RUN_AGAIN = "run 's3://in/my archive.zip' s3://out/to/ --on-conflict skip-unchanged"
COMMANDS = {
    Help.RETRY: "s3unzip resume RUN --failed",
    Help.RETRY_WITH_PASSWORD: "s3unzip resume RUN --failed",
    Help.RUN_WITH_PASSWORD: "s3unzip run",
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


@pytest.mark.parametrize("code", sorted(CHECKS.keys() | OTHER.keys()))
def test_advice_and_next_command_agree(code: str) -> None:
    """For each code, the command in the advice is the one that is offered."""
    offered, advice = next_command(_failed(code)), explain(code).advice
    assert offered is not None
    found = find_help(code)
    if found in COMMANDS:
        assert COMMANDS[found] in advice
        assert offered.startswith(COMMANDS[found].partition(" RUN")[0])
    else:
        assert offered == "s3unzip show run-1 --failures"


@pytest.mark.parametrize(
    ("codes", "here", "there"),
    [
        (("crc-mismatch",), "show run-1 --failures", "show run-1 --failures --env dev"),
        (
            ("store-refused", "crc-mismatch"),
            "resume run-1 --failed",
            "resume run-1 --failed --env dev",
        ),
        (
            ("wrong-password",),
            "resume run-1 --failed --password-file FILE",
            "resume run-1 --failed --env dev",
        ),
        (("strong-encryption",), "show run-1 --failures", "show run-1 --failures --env dev"),
        (("encrypted",), f"{RUN_AGAIN} --password-file FILE", "show run-1 --failures --env dev"),
    ],
)
def test_the_next_command_follows_from_the_reason(
    codes: tuple[str, ...], here: str, there: str
) -> None:
    """On this machine and in an environment, whose password is in a secret."""
    assert next_command(_failed(*codes)) == f"s3unzip {here}"
    assert next_command(_failed(*codes), "dev") == f"s3unzip {there}"


def test_how_the_stores_are_reached() -> None:
    """A new run needs the options again, a run that is continued only its environment does."""
    options = "--endpoint-url http://s3.local:9000 --profile 'a b'"
    assert next_command(_failed("encrypted"), None, REACHED) == (
        f"s3unzip {RUN_AGAIN} {options} --password-file FILE"
    )
    assert next_command(_failed("store-refused"), None, REACHED) == "s3unzip resume run-1 --failed"
    assert next_command(_failed("store-refused"), "dev", REACHED) == (
        f"s3unzip resume run-1 --failed --env dev {options}"
    )
    changed = msgspec.structs.replace(_failed(), verdict=Verdict.SOURCE_CHANGED)
    assert next_command(changed, None, REACHED) == f"s3unzip {RUN_AGAIN} {options}"


@pytest.mark.parametrize(
    "options", [Options(password_ref="prompt"), Options(names=("n" * 9,) * MAX_COMMAND)]
)
def test_a_useless_next_command_is_not_printed(options: Options) -> None:
    """No password that was given helps, and nobody types a thousand names: failures are shown."""
    assert next_command(_failed("encrypted", options=options)) == "s3unzip show run-1 --failures"


def test_failures_that_the_report_names_need_no_command() -> None:
    """The report names five members of each reason; only more than these are worth a list."""
    assert next_command(_failed("crc-mismatch", members=5)) is None
    assert next_command(_failed("crc-mismatch", members=6)) == "s3unzip show run-1 --failures"


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
