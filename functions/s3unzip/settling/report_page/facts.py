"""The facts of a run as sections of its page: tiles, the bill, identity, requests and warnings.

Limits bound the size of the page for every archive.
"""

from collections.abc import Iterable, Iterator, Mapping
from operator import itemgetter
from typing import NamedTuple

from msgspec import structs

from s3unzip.explanations import advise, explain
from s3unzip.figures import choose_form, show_bytes, show_dollars, show_seconds, show_share
from s3unzip.model import Options, Report, Requests, Verdict
from s3unzip.pricing import Cost, CostLine
from s3unzip.settling.report_page.markup import (
    NO_BREAK_SPACE,
    NOTHING,
    Column,
    Markup,
    aside,
    bar,
    clip,
    element,
    figure,
    plain,
    row,
    table,
    text,
)

MAX_CODES = 50  # reasons and warnings listed
MAX_NAME = 1_024  # characters of a key: S3's own limit
MAX_TEXT = 400  # characters of a message or an option
REQUEST_TITLES = {
    "get": "GET",
    "put": "PUT",
    "head": "HEAD",
    "list": "LIST",
    "create": "CreateMultipartUpload",
    "part": "UploadPart",
    "copy": "UploadPartCopy",
    "complete": "CompleteMultipartUpload",
    "abort": "AbortMultipartUpload",
}


class Shown(NamedTuple):
    """What a page shows."""

    report: Report
    cost: Cost | None  # None: the run cost nothing, or its cost is not known
    next_command: str | None  # None: nothing is left to do
    environment_options: str  # with a space before them; empty for a run on this machine


class Ranked(NamedTuple):
    """A code of a failure or a warning, with the number of its members."""

    code: str
    members: int
    sentence: str
    advice: str


def rank(counts: Mapping[str, int], shown: Shown) -> list[Ranked]:
    """Return the most frequent codes, and all others as one line; equal counts in code order."""
    order = sorted(sorted(counts.items()), key=itemgetter(1), reverse=True)
    ranked = [
        Ranked(
            clip(code, MAX_TEXT),
            count,
            clip(explain(code).sentence, MAX_TEXT),
            clip(advise(code, shown.report.run, shown.environment_options), MAX_TEXT),
        )
        for code, count in order[:MAX_CODES]
    ]
    unlisted = sum(count for _, count in order[MAX_CODES:])
    if unlisted:
        ranked.append(
            Ranked(f"{len(order) - MAX_CODES} other codes", unlisted, sentence="", advice="")
        )
    return ranked


def facts(shown: Shown) -> Markup:
    """Return a tile for each fact: members, times, bytes, requests and cost."""
    tiles = [*_member_tiles(shown.report), *_work_tiles(shown.report)]
    if shown.cost:
        tiles.append(_cost_tile(shown.report, shown.cost))
    columns = max(len(tiles), 3)
    if len(tiles) > 5:  # two rows; the second may have one tile less
        columns = (len(tiles) + 1) // 2
    return element("dl", {"id": "facts", "class": f"facts columns-{columns}"}, *tiles)


def _tile(name: str, value: Markup, note: str = "", tone: str = "") -> Markup:
    """Return one tile: a name, a value, and a note below it; `tone` is a CSS class."""
    amount = element("div", {"class": f"value {tone}".rstrip()}, value)
    return element(
        "div",
        {},
        element("dt", {}, plain(name)),
        element("dd", {}, amount, element("div", {"class": "note"}, plain(note))),
    )


def _member_tiles(report: Report) -> Iterator[Markup]:
    """Yield the tiles of members: extracted, failed, without an outcome; none if it was refused."""
    if report.verdict is Verdict.REJECTED:
        return
    asides: list[str] = []
    if report.unchanged:
        asides.append(f"{report.unchanged:,} unchanged")
    if report.excluded:
        asides.append(f"{report.excluded:,} not selected")
    if report.directories:
        noun = choose_form(report.directories, "directory", "directories")
        asides.append(f"{report.directories:,} {noun}")
    note = ", ".join(asides) or f"of {report.members:,}"
    yield _tile("Members extracted", figure(f"{report.extracted:,}"), note)
    files = max(report.members - report.directories, report.failed + report.missing)
    # "Failed 0" beside members without an outcome would suggest that all is well.
    if report.failed:
        share = f"{_share(report.failed, files)} of the members"
        yield _tile("Failed", figure(f"{report.failed:,}"), share, "bad")
    elif not report.missing:
        yield _tile("Failed", figure("0"), "none")
    if report.missing:
        share = f"{_share(report.missing, files)} of the members"
        yield _tile("No outcome", figure(f"{report.missing:,}"), share, "bad")


def _share(part: int, whole: int) -> str:
    return show_share(part, whole).replace(" ", NO_BREAK_SPACE)


def _work_tiles(report: Report) -> Iterator[Markup]:
    """Yield the tiles of the work: times, rate, bytes, tasks and requests."""
    seconds = max(0.0, report.finished - report.started)
    plan_note = ""
    if report.plan_seconds:
        plan_note = f"the plan took {show_seconds(report.plan_seconds)}"
    yield _tile("Duration", figure(show_seconds(seconds)), plan_note)
    if report.first_object is not None:
        began = report.event_time or report.started
        yield _tile(
            "First object",
            figure(show_seconds(report.first_object - began)),
            "after the upload" if report.event_time else "after the start",
        )
    yield from _rate_tiles(report, seconds)
    read_note = ""
    if report.bytes_in:
        read_note = f"{show_bytes(report.bytes_in)} read"
    if report.bytes_out:
        yield _tile("Written", figure(show_bytes(report.bytes_out)), read_note)
    elif report.verdict is Verdict.REJECTED:
        yield _tile("Written", figure("nothing"), read_note)
    if report.tasks > 1:
        failed_note = ""
        if report.tasks_failed:
            failed_note = f"{report.tasks_failed:,} failed"
        yield _tile("Tasks", figure(f"{report.tasks:,}"), failed_note)
    calls = sum(count for _, count in _count_calls(report.requests))
    if calls:
        retries = "none retried"
        if report.requests.retries:
            throttled = f"{report.requests.throttled:,} throttled"
            retries = f"{report.requests.retries:,} retried, {throttled}"
        yield _tile("Requests", figure(f"{calls:,}"), retries)


def _rate_tiles(report: Report, seconds: float) -> Iterator[Markup]:
    """Yield the rate, unless the run had one member or mostly waited: a rate would mislead then."""
    members = report.extracted + report.unchanged
    has_worked = report.plan_seconds + report.task_seconds > seconds / 2
    if members > 1 and seconds and has_worked:
        rate = figure(f"{members / seconds:,.0f}") + element("small", {}, figure(" members/s"))
        yield _tile("Rate", Markup(rate), f"{show_bytes(report.bytes_out / seconds)}/s written")


def _count_calls(requests: Requests) -> list[tuple[str, int]]:
    """Return the title and the count of each kind of request that was sent."""
    counts = [(title, int(getattr(requests, name))) for name, title in REQUEST_TITLES.items()]
    return [(title, count) for title, count in counts if count]


def _cost_tile(report: Report, cost: Cost) -> Markup:
    """Return the tile of the cost: of the run, and per TB or per million members."""
    unit_price = ""
    if report.extracted:
        # Members below 1 MB cost by their number, larger ones by their bytes.
        if report.bytes_out > report.extracted * 1e6:
            unit_price = f"{show_dollars(cost.total / report.bytes_out * 1e12)} a TB written"
        else:
            unit_price = f"{show_dollars(cost.total / report.extracted * 1e6)} a million members"
    return _tile("Cost", figure(show_dollars(cost.total)), unit_price)


def bill(cost: Cost | None) -> Markup:
    """Return the cost of each service; nothing if the run cost nothing."""
    if cost is None or not cost.lines:
        return NOTHING
    columns = (
        Column("Service", is_header=True),
        Column("", "part"),
        Column("Dollars", "number"),
    )
    largest = max(line.dollars for line in cost.lines)
    rows = [
        row(
            columns,
            [
                _service(line),
                bar(line.dollars, largest, "segment"),
                figure(show_dollars(line.dollars)),
            ],
        )
        for line in cost.lines
    ]
    return table(
        "Cost by service",
        columns,
        rows,
        note="Counted requests and seconds at list prices; not a bill.",
        foot=row(columns, [plain("Total"), NOTHING, figure(show_dollars(cost.total))]),
    )


def _service(line: CostLine) -> Markup:
    """Return the service and the item of a cost line, with the quantity below them."""
    unit = line.unit
    if round(line.quantity) != 1 and not unit.endswith("s"):
        unit += "s"
    item = element("span", {"class": "item"}, plain(line.item))
    return Markup(f"{plain(line.service)} {item}{aside(f'{line.quantity:,.0f} {unit}')}")


def details(shown: Shown) -> Markup:
    """Return the identity of the run, its requests and its warnings."""
    report = shown.report
    columns = (Column("Name", is_header=True), Column("Value", "mono"))
    rows = [row(columns, [plain(name), text(value)]) for name, value in _identify(report)]
    identity = element("div", {"id": "identity"}, table("Identity", columns, rows))
    warnings = _warnings(rank(report.warnings, shown))
    counts = element("div", {}, _requests(report.requests), warnings)
    return element("div", {"class": "pair"}, identity, counts)


def _identify(report: Report) -> Iterator[tuple[str, str]]:
    """Yield the run's identifying fields, and the options that differ from the defaults."""
    yield "Run", report.run
    if report.route is not None:
        yield "Route", report.route.name
    if report.pin is not None:
        yield "Archive size", f"{report.pin.size:,} bytes"
        if report.pin.version_id:
            yield "Version id", clip(report.pin.version_id, MAX_NAME)
        if report.pin.etag:
            yield "ETag", clip(report.pin.etag, MAX_NAME)
    defaults = Options()
    for name, value in structs.asdict(report.options).items():
        if value != getattr(defaults, name):
            shown = str(value)
            if isinstance(value, tuple):
                shown = ", ".join(str(part) for part in value[:MAX_CODES])
            yield f"Option {name.replace('_', '-')}", clip(shown, MAX_NAME)


def _requests(requests: Requests) -> Markup:
    """Return the table of requests by kind; nothing if none was sent."""
    calls = _count_calls(requests)
    if not calls:
        return NOTHING
    calls += [
        ("of these, retries", requests.retries),
        ("of these, throttled", requests.throttled),
    ]
    return _counts("requests", "Requests", "Call", ((plain(name), n) for name, n in calls))


def _warnings(warnings: list[Ranked]) -> Markup:
    """Return the table of warnings; nothing without warnings."""
    if not warnings:
        return NOTHING
    return _counts(
        "warnings",
        "Warnings",
        "Warning",
        ((Markup(f"{text(w.sentence)} {text(w.code)}"), w.members) for w in warnings),
        note="Oddities that were let pass.",
    )


def _counts(
    section_id: str,
    caption: str,
    title: str,
    counts: Iterable[tuple[Markup, int]],
    *,
    note: str = "",
) -> Markup:
    """Return a table of names and counts, in an element with the id `section_id`."""
    columns = (Column(title, is_header=True), Column("Count", "number"))
    rows = [row(columns, [name, figure(f"{count:,}")]) for name, count in counts]
    return element("div", {"id": section_id}, table(caption, columns, rows, note=note))
