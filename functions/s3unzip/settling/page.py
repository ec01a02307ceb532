"""``report.html``: one page about a run, made of its report alone; it loads nothing from a network.

Text from an archive reaches the page only as JSON in a data block, and the page's script inserts it
only as text nodes. The Content-Security-Policy lists the script and the style by their hashes, so
injected markup could neither run nor load anything. The constants below bound the page for every
archive.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from functools import cache
from importlib import resources

import msgspec
from msgspec import Struct, structs

from s3unzip.estimate import Cost
from s3unzip.explanations import advise, explain
from s3unzip.model import Report, Requests, Verdict
from s3unzip.version import __version__

CODES = 50  # reasons and warnings listed
NAME_CHARS = 1_024  # of a key: S3's own limit
TEXT_CHARS = 400  # of a message or an option
FAILURE_BYTES = 1_000_000  # of all listed failures, encoded for the page
DATA = b"@@DATA@@"


class Reason(Struct, frozen=True, array_like=True):
    """A code, how many members it is about, and what it means in words."""

    code: str
    members: int
    sentence: str
    advice: str


class FailureRow(Struct, frozen=True, array_like=True):
    """A failure as the table shows it."""

    key: str  # relative to the destination
    reason: str
    message: str
    offset: int | None
    task: str | None


class PageData(Struct, frozen=True):
    """What the page's script shows; times are seconds, sizes bytes, money US dollars."""

    run: str
    archive: str  # last part of the source
    verdict: Verdict
    reason: str | None
    message: str | None
    offset: int | None  # in the archive, of what the message is about
    advice: str | None  # of the reason
    verified: bool  # each member was compared with the directory's CRC-32
    source: str
    destination: str
    started: float  # Unix seconds
    members: int
    directories: int
    excluded: int
    extracted: int
    unchanged: int
    failed: int
    missing: int
    tasks: int
    tasks_failed: int
    bytes_in: int
    bytes_out: int
    requests: Requests
    seconds: float
    plan_seconds: float
    task_seconds: float
    first_object: float | None  # seconds after `first_object_since`
    first_object_since: str  # "the upload" or "the start"
    cost: float | None
    bill: tuple[tuple[str, str, str, float], ...]  # service, item, "1,000 requests", dollars
    reasons: tuple[Reason, ...]  # most frequent first
    warnings: tuple[Reason, ...]
    failures: tuple[FailureRow, ...]
    details: tuple[tuple[str, str], ...]  # name and value: pin, options
    next: str | None  # the command that goes on from here
    version: str  # of s3unzip


def make_page(
    report: Report, *, cost: Cost | None = None, next_command: str | None = None, where: str = ""
) -> bytes:
    """Return ``report.html``: UTF-8, self-contained, the same bytes for the same arguments.

    Args:
        report: of the run.
        cost: what the run cost; None: nothing, or it is not known.
        next_command: the command that goes on from here; None: there is none.
        where: the options, with a space before them, that find the run's environment.
    """
    before, after = _frame()
    return before + encode_safely(page_data(report, cost, next_command, where)) + after


def page_data(report: Report, cost: Cost | None, next_command: str | None, where: str) -> PageData:
    """Return what the page shows; the arguments are those of `make_page`."""
    since = report.event_time or report.started
    first = report.first_object
    counts = {} if report.verdict is Verdict.REJECTED else report.reasons
    return PageData(
        run=report.run,
        archive=clip(report.source.key.split("?", 1)[0].rsplit("/", 1)[-1], NAME_CHARS),
        verdict=report.verdict,
        reason=report.reason and clip(report.reason, TEXT_CHARS),
        message=report.message and clip(report.message, TEXT_CHARS),
        offset=report.offset,
        advice=advise(report.reason, report.run, where) if report.reason else None,
        verified=not report.options.trust_crc,
        source=clip(str(report.source).split("?", 1)[0], 2 * NAME_CHARS),
        destination=clip(str(report.destination), 2 * NAME_CHARS),
        started=report.started,
        members=report.members,
        directories=report.directories,
        excluded=report.excluded,
        extracted=report.extracted,
        unchanged=report.unchanged,
        failed=report.failed,
        missing=report.missing,
        tasks=report.tasks,
        tasks_failed=report.tasks_failed,
        bytes_in=report.bytes_in,
        bytes_out=report.bytes_out,
        requests=report.requests,
        seconds=round(max(0.0, report.finished - report.started), 3),
        plan_seconds=round(report.plan_seconds, 3),
        task_seconds=round(report.task_seconds, 3),
        first_object=None if first is None else round(first - since, 3),
        first_object_since="the upload" if report.event_time else "the start",
        cost=cost.total if cost else None,
        bill=_bill(cost) if cost else (),
        reasons=_ranked(counts, report.run, where),
        warnings=_ranked(report.warnings, report.run, where),
        failures=_failures(report),
        details=_details(report),
        next=next_command,
        version=__version__,
    )


def _bill(cost: Cost) -> tuple[tuple[str, str, str, float], ...]:
    found = []
    for line in cost.lines:
        plural = "" if line.unit.endswith("s") or round(line.quantity) == 1 else "s"
        basis = f"{line.quantity:,.0f} {line.unit}{plural}"
        found.append((line.service, line.item, basis, line.dollars))
    return tuple(found)


def _ranked(counts: Mapping[str, int], run: str, where: str) -> tuple[Reason, ...]:
    """Return the most frequent codes with their words, and the rest of them as one."""
    order = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    shown = [
        Reason(
            clip(code, TEXT_CHARS),
            count,
            clip(explain(code).sentence, TEXT_CHARS),
            clip(advise(code, run, where), TEXT_CHARS),
        )
        for code, count in order[:CODES]
    ]
    if rest := sum(count for _, count in order[CODES:]):
        shown.append(Reason(f"{len(order) - CODES} other codes", rest, "", ""))
    return tuple(shown)


def _failures(report: Report) -> tuple[FailureRow, ...]:
    """Return the listed failures that fit the page's budget, in the report's order."""
    listed: list[FailureRow] = []
    left = FAILURE_BYTES
    below = report.destination.key
    for failure in report.failures:
        line = FailureRow(
            key=clip(failure.key.removeprefix(below), NAME_CHARS),
            reason=clip(failure.reason, TEXT_CHARS),
            message=clip(failure.message, TEXT_CHARS),
            offset=failure.offset,
            task=failure.task and clip(failure.task, TEXT_CHARS),
        )
        left -= len(encode_safely(line))
        if left < 0:
            break
        listed.append(line)
    return tuple(listed)


def _details(report: Report) -> tuple[tuple[str, str], ...]:
    """Return the run's identifying fields and the options that differ from the defaults."""
    found = [("Run", report.run)]
    if report.pin is not None:
        found.append(("Archive size", f"{report.pin.size:,} bytes"))
        found += [("Version id", report.pin.version_id)] if report.pin.version_id else []
        found += [("ETag", report.pin.etag)] if report.pin.etag else []
    defaults = type(report.options)()
    for name, value in structs.asdict(report.options).items():
        if value != getattr(defaults, name):
            listed = isinstance(value, tuple)
            text = ", ".join(str(item) for item in value[:CODES]) if listed else str(value)
            found.append((f"Option {name.replace('_', '-')}", text))
    return tuple((name, clip(text, NAME_CHARS)) for name, text in found)


@cache
def _frame() -> tuple[bytes, bytes]:
    """Return the page before and after its data."""
    script, style = _asset("page.js"), _asset("page.css")
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    # Split at the data's place first, so that the data is never searched for a placeholder.
    before, after = _asset("page.html").split(DATA.decode())
    before = before.replace("@@POLICY@@", policy).replace("@@STYLE@@", style)
    return before.encode(), after.replace("@@SCRIPT@@", script).encode()


def _asset(name: str) -> str:
    # Browsers hash the text after turning CR LF into LF.
    path = resources.files("s3unzip.settling").joinpath("assets", name)
    return path.read_text(encoding="utf-8").replace("\r\n", "\n")


def _hash(text: str) -> str:
    """Return the CSP source that allows exactly `text` inline."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


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
