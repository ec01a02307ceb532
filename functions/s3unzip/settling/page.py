"""``report.html``: the page of a report, for people.

The page is made of the report alone and loads nothing from a network. Text from an archive
reaches the page only as JSON in a data block, and the page's script inserts it only as text nodes.
The Content-Security-Policy lists the script and the style by their hashes, so injected markup could
neither run nor load anything. The constants below bound the page for every archive.
"""

import base64
import hashlib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

import msgspec
from msgspec import structs

from s3unzip.context import Context
from s3unzip.estimate import Cost, price_run
from s3unzip.explanations import advise, explain
from s3unzip.model import Report, Verdict
from s3unzip.settling.next_command import in_environment, next_command
from s3unzip.version import __version__

CODES = 50  # reasons and warnings listed
NAME_CHARS = 1_024  # of a key: S3's own limit
TEXT_CHARS = 400  # of a message or an option
FAILURE_BYTES = 1_000_000  # of all listed failures, encoded for the page
DATA = b"@@DATA@@"
SHOWN = (  # fields of the report that the page shows as they are
    *("run", "verdict", "offset", "started", "members", "directories", "excluded", "extracted"),
    *("unchanged", "failed", "missing", "tasks", "tasks_failed", "bytes_in", "bytes_out"),
    "requests",
)


def render_page(report: Report, context: Context) -> bytes:
    """Return the page of a report."""
    cost = price_run(report, context.platform)
    following = next_command(report, context.environment, context.reached)
    return make_page(page_data(report, cost, following, in_environment(context.environment)))


def make_page(data: dict[str, Any]) -> bytes:
    """Return ``report.html``: UTF-8, self-contained, the same bytes for the same data."""
    before, after = _frame()
    return before + encode_safely(data) + after


def page_data(
    report: Report, cost: Cost | None, following: str | None, where: str
) -> dict[str, Any]:
    """Return what the page's script shows; times are seconds, sizes bytes, money US dollars.

    Args:
        cost: what the run cost; None: nothing, or it is not known.
        following: the command that goes on from here; None: there is none.
        where: the options, with a space before them, that find the run's environment.
    """
    since = report.event_time or report.started
    first = report.first_object
    counts = {} if report.verdict is Verdict.REJECTED else report.reasons
    return {name: getattr(report, name) for name in SHOWN} | {
        "archive": clip(report.source.key.split("?", 1)[0].rsplit("/", 1)[-1], NAME_CHARS),
        "reason": report.reason and clip(report.reason, TEXT_CHARS),
        "message": report.message and clip(report.message, TEXT_CHARS),
        "advice": advise(report.reason, report.run, where) if report.reason else None,
        "verified": not report.options.trust_crc,
        "source": clip(str(report.source).split("?", 1)[0], 2 * NAME_CHARS),
        "destination": clip(str(report.destination), 2 * NAME_CHARS),
        "seconds": round(max(0.0, report.finished - report.started), 3),
        "plan_seconds": round(report.plan_seconds, 3),
        "task_seconds": round(report.task_seconds, 3),
        "first_object": None if first is None else round(first - since, 3),
        "first_object_since": "the upload" if report.event_time else "the start",
        "cost": cost.total if cost else None,
        "bill": _bill(cost) if cost else (),
        "reasons": _ranked(counts, report.run, where),
        "warnings": _ranked(report.warnings, report.run, where),
        "failures": _failures(report),
        "details": _details(report),
        "next": following,
        "version": __version__,
    }


def _bill(cost: Cost) -> list[tuple[str, str, str, float]]:
    """Return service, item, "1,000 requests" and dollars of each line."""
    found = []
    for line in cost.lines:
        plural = "" if line.unit.endswith("s") or round(line.quantity) == 1 else "s"
        basis = f"{line.quantity:,.0f} {line.unit}{plural}"
        found.append((line.service, line.item, basis, line.dollars))
    return found


def _ranked(counts: Mapping[str, int], run: str, where: str) -> list[tuple[str, int, str, str]]:
    """Return the most frequent codes with members, sentence and advice; the rest as one."""
    order = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    shown = []
    for code, count in order[:CODES]:
        words = (explain(code).sentence, advise(code, run, where))
        sentence, advice = (clip(text, TEXT_CHARS) for text in words)
        shown.append((clip(code, TEXT_CHARS), count, sentence, advice))
    if rest := sum(count for _, count in order[CODES:]):
        shown.append((f"{len(order) - CODES} other codes", rest, "", ""))
    return shown


def _failures(report: Report) -> list[tuple[str, str, str, int | None, str | None]]:
    """Return key, reason, message, offset and task of the failures that fit the page's budget."""
    listed = []
    left = FAILURE_BYTES
    for failure in report.failures:
        line = (
            clip(failure.key.removeprefix(report.destination.key), NAME_CHARS),
            clip(failure.reason, TEXT_CHARS),
            clip(failure.message, TEXT_CHARS),
            failure.offset,
            failure.task and clip(failure.task, TEXT_CHARS),
        )
        left -= len(encode_safely(line))
        if left < 0:
            break
        listed.append(line)
    return listed


def _details(report: Report) -> list[tuple[str, str]]:
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
    return [(name, clip(text, NAME_CHARS)) for name, text in found]


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
