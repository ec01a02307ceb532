"""``report.html``: the page of a report, for people.

Rules:

- The page is made of the report alone, and loads nothing from a network. The same report makes the
  same bytes, so a repeated step writes the page that is there.
- All text from an archive is escaped by `markup`.
- The Content-Security-Policy lists the script and the style by their hashes. So injected markup
  could neither run nor load anything.
- The constants below bound the page for every archive.
"""

import base64
import hashlib
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from s3unzip.context import Context
from s3unzip.model import Report
from s3unzip.pricing import price_run
from s3unzip.settling.next_command import in_environment, next_command
from s3unzip.settling.report_page import details, facts, failures, header
from s3unzip.settling.report_page.contents import MAX_NAME, Shown
from s3unzip.settling.report_page.markup import Markup, clip, element, plain, text, title_text
from s3unzip.version import __version__


class Section(NamedTuple):
    """A section of the page."""

    id: str
    title: str
    content: Markup


def render_page(report: Report, context: Context) -> bytes:
    """Return the page of a report."""
    shown = Shown(
        report=report,
        cost=price_run(report, context.platform),
        next_command=next_command(report, context.environment, context.reached),
        environment_options=in_environment(context.environment),
    )
    return make_page(shown)


def make_page(shown: Shown) -> bytes:
    """Return ``report.html``: UTF-8, self-contained, the same bytes for the same report."""
    report = shown.report
    archive = clip(report.source.name.rsplit("/", 1)[-1], MAX_NAME)
    _, verdict = header.show_verdict(report)
    sections = [
        Section("summary", "Summary", facts.facts(shown)),
        Section("failures", "Failures", failures.failures(shown)),
        Section("cost", "Cost", details.bill(shown.cost)),
        Section("details", "Details", details.details(shown)),
    ]
    present = [section for section in sections if section.content]
    values = {
        "TITLE": title_text(f"{archive}: {verdict[2:-1].lower()} · s3unzip"),
        "ARCHIVE": text(archive),
        "VERDICT": header.verdict(shown),
        "CAUSE": header.cause(shown),
        "ROUTE": header.route(shown),
        "LINKS": Markup("".join(_link(section) for section in present)),
        "SECTIONS": Markup("".join(_section(section) for section in present)),
        "VERSION": plain(f"s3unzip {__version__}"),
    }
    return _fill(values).encode()


def _link(section: Section) -> Markup:
    return element("li", {}, element("a", {"href": f"#{section.id}"}, plain(section.title)))


def _section(section: Section) -> Markup:
    title_id = f"{section.id}-title"
    title = element("h2", {"id": title_id}, plain(section.title))
    attributes = {"id": section.id, "aria-labelledby": title_id}
    return element("section", attributes, title, section.content)


def _fill(values: Mapping[str, Markup]) -> str:
    """Return the template with its placeholders replaced; values are not searched for any."""
    parts = _template()
    return "".join(values[part] if position % 2 else part for position, part in enumerate(parts))


@cache
def _template() -> tuple[str, ...]:
    """Return text and names of placeholders in turn; style, script and policy are filled in."""
    script = _read_asset("page.js")
    style = _read_asset("page.css")
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    page = _read_asset("page.html").replace("@@POLICY@@", policy)
    page = page.replace("@@STYLE@@", style).replace("@@SCRIPT@@", script)
    return tuple(re.split("@@([A-Z]+)@@", page))


def _read_asset(name: str) -> str:
    # Browsers hash the text after turning CR LF into LF.
    path = Path(__file__).with_name("assets") / name
    return path.read_text(encoding="utf-8").replace("\r\n", "\n")


def _hash(asset: str) -> str:
    """Return the CSP source that allows exactly this text inline."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(asset.encode()).digest()).decode()}'"
