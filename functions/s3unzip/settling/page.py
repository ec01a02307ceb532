"""``report.html``: the page that people read.

Rules:

- The page is built only from the report, and loads nothing from a network. The same report produces
  the same bytes, so a repeated step writes the same page.
- `markup` escapes all text from an archive.
- The Content-Security-Policy allows only the script and the style with the listed hashes. Injected
  markup could therefore neither run nor load anything.
- The constants in `page_sections` limit the size of the page, whatever the archive contains.
"""

import base64
import hashlib
import itertools
import re
from datetime import UTC, datetime
from functools import cache
from pkgutil import get_data

from s3unzip.context import Context
from s3unzip.explanations import advise
from s3unzip.model import Report, Verdict
from s3unzip.planning.select import members_folder
from s3unzip.pricing import price_run
from s3unzip.printable import choose_form, show_count
from s3unzip.runs.step import STOPPED
from s3unzip.settling.markup import (
    NOTHING,
    Markup,
    aside,
    clip,
    element,
    title_text,
    trusted,
    untrusted,
)
from s3unzip.settling.next_command import environment_options, next_command
from s3unzip.settling.page_sections import (
    MAX_NAME,
    MAX_TEXT,
    bill,
    details,
    facts,
    failures,
)
from s3unzip.version import __version__

VERDICTS = {  # the CSS class, the symbol and the text for each verdict
    Verdict.COMPLETED: ("good", "✓", "Completed"),
    Verdict.COMPLETED_WITH_ERRORS: ("warn", "▲", "Completed with errors"),
    Verdict.REJECTED: ("bad", "✕", "Rejected"),
    Verdict.SOURCE_CHANGED: ("bad", "✕", "Source changed"),
    Verdict.FAILED: ("bad", "✕", "Failed"),
}
STOPPED_BANNER = ("warn", "■", "Stopped")


def render_page(report: Report, context: Context) -> bytes:
    """Return ``report.html`` in UTF-8: self-contained, with the same bytes for the same report."""
    cost = price_run(report, context.platform)
    command = next_command(report, context.environment, context.connections)
    options = environment_options(context.environment)
    archive = clip(report.source.name.rsplit("/", 1)[-1], MAX_NAME)
    style, symbol, verdict = VERDICTS[report.verdict]
    if report.verdict is Verdict.FAILED and report.reason == STOPPED:  # by a user
        style, symbol, verdict = STOPPED_BANNER
    description = _describe_verdict(report, command)
    sections = {
        "Summary": facts(report, cost),
        "Failures": failures(report, options),
        "Cost": bill(cost),
        "Details": details(report),
    }
    present = {title: content for title, content in sections.items() if content}
    values = {
        "TITLE": title_text(f"{archive}: {verdict.lower()} · s3unzip"),
        "ARCHIVE": untrusted(archive),
        "VERDICT": element("b", {"class": style}, trusted(f"{symbol} {verdict}."))
        + trusted(description),
        "CAUSE": _explain_end(report, options),
        "ROUTE": _list_run_facts(report, command),
        "LINKS": "".join(
            element("li", {}, element("a", {"href": f"#{title.lower()}"}, trusted(title)))
            for title in present
        ),
        "SECTIONS": "".join(itertools.starmap(_section, present.items())),
        "VERSION": trusted(f"s3unzip {__version__}"),
    }
    # One call replaces all placeholders, so a placeholder inside a value is not replaced.
    return re.sub("@@([A-Z]+)@@", lambda match: values[match[1]], _make_template()).encode()


def _section(title: str, content: Markup) -> Markup:
    name = title.lower()
    return element(
        "section",
        {"id": name, "aria-labelledby": f"{name}-title"},
        element("h2", {"id": f"{name}-title"}, trusted(title)),
        content,
    )


@cache
def _make_template() -> str:
    script = _read_asset("page.js")
    style = _read_asset("page.css")
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    return (
        _read_asset("page.html")
        .replace("@@POLICY@@", policy)
        .replace("@@STYLE@@", style)
        .replace("@@SCRIPT@@", script)
    )


def _read_asset(name: str) -> str:
    # `get_data` also reads from a package in a ZIP archive (zipapp). Browsers convert CR LF to LF
    # before they hash the text.
    return (get_data("s3unzip.settling", f"assets/{name}") or b"").decode().replace("\r\n", "\n")


def _hash(asset: str) -> str:
    """Return the CSP source that allows exactly this text as an inline script or style."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(asset.encode()).digest()).decode()}'"


def _describe_verdict(report: Report, command: str | None) -> str:
    """Return sentences that say how many members are in place and how they were checked."""
    present = report.extracted + report.unchanged
    proof = "checked against the archive\N{RIGHT SINGLE QUOTATION MARK}s sizes and CRC-32s"
    if report.options.trust_crc:
        proof = "CRC-32s trusted, not checked"
    verb = choose_form(present, "is", "are")
    in_place = f"{show_count(present, 'member')} {verb} in place, {proof}"
    match report.verdict:
        case Verdict.COMPLETED:
            if not present:
                return "There was nothing to extract."
            return f"{in_place}."
        case Verdict.COMPLETED_WITH_ERRORS:
            # at least the number of failed members, even if the counts of the report disagree
            files = max(report.members - report.directories, report.failed)
            return f"{show_count(report.failed, 'member')} of {files:,} failed; {in_place}."
        case Verdict.REJECTED:
            return "Nothing was written."
        case Verdict.SOURCE_CHANGED:
            return (
                "The archive was replaced while it was read, so the run stopped. "
                "Start again to extract the new archive."
            )
        case Verdict.FAILED:
            sentence = in_place if present else "nothing is known to be in place"
            if report.missing:
                verb = choose_form(report.missing, "has", "have")
                sentence = f"{show_count(report.missing, 'member')} {verb} no outcome; {sentence}"
            if command is not None:
                sentence += ". The next command continues from here"
            return f"{sentence}."


def _explain_end(report: Report, options: str) -> Markup:
    """Return the report's message, reason code and advice; empty if it has no message or code."""
    if not (report.reason or report.message):
        return NOTHING
    content = [untrusted(clip(report.message or "", MAX_TEXT)), Markup(" ")]
    if report.reason:
        code = [untrusted(clip(report.reason, MAX_TEXT))]
        if report.offset is not None:
            code.append(trusted(f" at byte {report.offset:,}"))
        content += [element("code", {}, *code), aside(advise(report.reason, report.run, options))]
    return element("p", {"id": "cause"}, *content)


def _list_run_facts(report: Report, command: str | None) -> Markup:
    """Return the source, destination, times and id of the run, and the next command."""
    pairs = [
        ("Source", untrusted(clip(str(report.source), 2 * MAX_NAME))),
        ("Destination", untrusted(clip(str(members_folder(report)), 2 * MAX_NAME))),
        ("Started", trusted(_show_moment(report.started))),
        ("Ended", trusted(_show_moment(report.finished))),
        ("Run", untrusted(report.run)),
    ]
    if command:
        # The button is hidden until the page's script runs, because it needs the script.
        attributes = {
            "id": "copy",
            "type": "button",
            "hidden": "hidden",
            "value": command,
            "aria-label": "Copy the next command",
        }
        copy = element("button", attributes, trusted("Copy"))
        pairs.append(("Next", Markup(f"{untrusted(command)} {copy}")))
    return Markup(
        "".join(
            element("dt", {}, trusted(name)) + element("dd", {}, value) for name, value in pairs
        )
    )


def _show_moment(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"
