"""The bill, the run's identity, its requests and its warnings."""

from collections.abc import Iterable, Iterator

from msgspec import structs

from s3unzip.figures import show_dollars
from s3unzip.model import Report, Requests
from s3unzip.pricing import Cost, CostLine
from s3unzip.settling.report_page.contents import MAX_CODES, MAX_NAME, Ranked, Shown, rank
from s3unzip.settling.report_page.facts import count_calls
from s3unzip.settling.report_page.markup import (
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


def bill(cost: Cost | None) -> Markup:
    """Return what each service cost; nothing if the run cost nothing."""
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
    unit = line.unit
    if round(line.quantity) != 1 and not unit.endswith("s"):
        unit += "s"
    service = element("span", {"class": "item"}, plain(line.item))
    return Markup(f"{plain(line.service)} {service}{aside(f'{line.quantity:,.0f} {unit}')}")


def details(shown: Shown) -> Markup:
    """Return the identity of the run, its requests and its warnings."""
    report = shown.report
    columns = (Column("Name", is_header=True), Column("Value", "mono"))
    rows = [row(columns, [plain(name), text(value)]) for name, value in _identify(report)]
    identity = element("div", {"id": "identity"}, table("Identity", columns, rows))
    warnings = _warnings(rank(report.warnings, shown))
    counts = Markup(_requests(report.requests) + warnings)
    return element("div", {"class": "pair"}, identity, element("div", {}, counts))


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
    defaults = type(report.options)()
    for name, value in structs.asdict(report.options).items():
        if value != getattr(defaults, name):
            yield f"Option {name.replace('_', '-')}", clip(_show_option(value), MAX_NAME)


def _show_option(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(str(part) for part in value[:MAX_CODES])
    return str(value)


def _requests(requests: Requests) -> Markup:
    """Return how many requests of each kind were sent; nothing if there were none."""
    calls = count_calls(requests)
    if not calls:
        return NOTHING
    calls.append(("of these, retries", requests.retries))
    calls.append(("of these, throttled", requests.throttled))
    return _counts("requests", "Requests", "Call", ((plain(name), n) for name, n in calls))


def _warnings(warnings: list[Ranked]) -> Markup:
    if not warnings:
        return NOTHING
    rows = ((Markup(f"{text(w.sentence)} {text(w.code)}"), w.members) for w in warnings)
    return _counts("warnings", "Warnings", "Warning", rows, note="Oddities that were let pass.")


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
