"""The sections of a report's page: facts, failures, the bill, and the details of the run.

Limits bound the size of the page, whatever the archive contains. Codes need no limit, because they
are a fixed set.
"""

from collections.abc import Iterator, Mapping, Sequence

from msgspec import structs

from s3unzip.explanations import advise, explain
from s3unzip.model import Options, Report, Requests, Verdict
from s3unzip.pricing import Cost
from s3unzip.printable import (
    choose_form,
    show_bytes,
    show_count,
    show_dollars,
    show_quantity,
    show_seconds,
    show_share,
)
from s3unzip.settling.markup import (
    NO_BREAK_SPACE,
    NOTHING,
    Markup,
    aside,
    bar,
    clip,
    element,
    figure,
    folded,
    row,
    table,
    trusted,
    untrusted,
)

MAX_FAILURE_BYTES = 1_000_000  # maximum total size of the rows of all failures
MAX_UNFOLDED_FAILURES = 10  # a longer list is folded, so that the cost stays on the first screen
MAX_NAME = 1_024  # maximum length of a key in characters: the limit of S3
MAX_TEXT = 400  # maximum length of a message or an option, in characters
FAILED_COLUMNS = {
    "Key": "mono key",
    "Reason": "mono reason",
    "Message": "",
    "Offset": "number offset",
}
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


def sort_codes(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    """Return the codes with their counts, the most frequent first; ties are sorted by code."""
    return sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))


def facts(report: Report, cost: Cost | None) -> Markup:
    """Return a tile for each fact: members, times, bytes, requests and cost."""
    tiles = [*_member_tiles(report), *_time_tiles(report), *_amount_tiles(report)]
    if cost is not None:
        tiles.append(_cost_tile(report, cost))
    # Up to five tiles are in one row, and more in two. A row has room for at least three tiles.
    columns = max(len(tiles), 3)
    if len(tiles) > 5:
        columns = (len(tiles) + 1) // 2
    return element("dl", {"id": "facts", "class": f"facts columns-{columns}"}, *tiles)


def _tile(
    name: str, value: Markup, note: str = "", tone: str = "", *, has_note: bool = True
) -> Markup:
    """Return one tile: a name, a value, and a note below the value.

    Args:
        name: what the value is.
        value: a figure or a word.
        note: the text below the value.
        tone: a CSS class.
        has_note: False if the note would say nothing, such as "0 failed". The line of the note is
            then empty.
    """
    if not has_note:
        note = ""
    amount = element("div", {"class": f"value {tone}".rstrip()}, value)
    note_line = element("div", {"class": "note"}, trusted(note))
    return element(
        "div", {}, element("dt", {}, trusted(name)), element("dd", {}, amount, note_line)
    )


def _member_tiles(report: Report) -> Iterator[Markup]:
    """Yield the tiles for members; the members of a refused archive have no tiles."""
    if report.verdict is Verdict.REJECTED:
        return
    other_counts = {
        "unchanged": report.unchanged,
        "not selected": report.excluded,
        choose_form(report.directories, "directory", "directories"): report.directories,
    }
    note = ", ".join(f"{count:,} {name}" for name, count in other_counts.items() if count)
    yield _tile(
        "Members extracted", figure(f"{report.extracted:,}"), note or f"of {report.members:,}"
    )
    # Directories are not counted, but a failed member may be a directory. Without `max`, the share
    # of failed members could exceed 100%.
    member_count = max(report.members - report.directories, report.failed + report.missing)
    # "Failed 0" next to members without an outcome would suggest that all is well.
    if not (report.failed or report.missing):
        yield _tile("Failed", figure("0"), "none")
    for name, count in {"Failed": report.failed, "No outcome": report.missing}.items():
        if count:
            share = show_share(count, member_count).replace(" ", NO_BREAK_SPACE)
            yield _tile(name, figure(f"{count:,}"), f"{share} of the members", "bad")


def _time_tiles(report: Report) -> Iterator[Markup]:
    """Yield the tiles for the duration, the time until the first object, and the rate."""
    seconds = max(0.0, report.finished - report.started)
    yield _tile(
        "Duration",
        figure(show_seconds(seconds)),
        f"the plan took {show_seconds(report.plan_seconds)}",
        has_note=report.plan_seconds > 0,
    )
    if report.first_object is not None:
        began = report.event_time or report.started
        yield _tile(
            "First object",
            figure(show_seconds(report.first_object - began)),
            "after the upload" if report.event_time else "after the start",
        )
    members = report.extracted + report.unchanged
    # A rate would mislead if the run had one member, or waited for most of its duration. A rate
    # below one member a second would be shown as 0.
    was_busy = report.plan_seconds + report.task_seconds > seconds / 2
    if members > 1 and 0 < seconds <= members and was_busy:
        rate = figure(f"{members / seconds:,.0f}") + element("small", {}, figure(" members/s"))
        yield _tile("Rate", Markup(rate), f"{show_bytes(report.bytes_out / seconds)}/s written")


def _amount_tiles(report: Report) -> Iterator[Markup]:
    """Yield the tiles for the amounts of work: bytes, tasks and requests."""
    read_note = f"{show_bytes(report.bytes_in)} read"
    if report.bytes_out:
        yield _tile(
            "Written",
            figure(show_bytes(report.bytes_out)),
            read_note,
            has_note=report.bytes_in > 0,
        )
    elif report.verdict is Verdict.REJECTED:
        yield _tile("Written", figure("nothing"), read_note, has_note=report.bytes_in > 0)
    if report.tasks > 1:
        yield _tile(
            "Tasks",
            figure(f"{report.tasks:,}"),
            f"{report.tasks_failed:,} failed",
            has_note=report.tasks_failed > 0,
        )
    requests = report.requests
    calls = sum(count for _, count in _count_calls(requests))
    retries = "none retried"
    if requests.retries:
        retries = f"{requests.retries:,} retried, {requests.throttled:,} throttled"
    if calls:
        yield _tile("Requests", figure(f"{calls:,}"), retries)


def _count_calls(requests: Requests) -> list[tuple[str, int]]:
    """Return the title and the count of each kind of request that was sent."""
    counts = [(title, int(getattr(requests, name))) for name, title in REQUEST_TITLES.items()]
    return [(title, count) for title, count in counts if count]


def _cost_tile(report: Report, cost: Cost) -> Markup:
    """Return the tile with the cost of the run, and its cost per TB or per million members."""
    total = figure(show_dollars(cost.total))
    if not report.extracted:
        return _tile("Cost", total)
    # The cost depends on the number of members if they are below 1 MB, otherwise on their size.
    if report.bytes_out > report.extracted * 1e6:
        unit_price = f"{show_dollars(cost.total / report.bytes_out * 1e12)} a TB written"
    else:
        unit_price = f"{show_dollars(cost.total / report.extracted * 1e6)} a million members"
    return _tile("Cost", total, unit_price)


def failures(report: Report, environment_options: str) -> Markup:
    """Return the section of failures; nothing if there are no failures.

    Args:
        report: the report of the run.
        environment_options: the options of the commands in the section, with a leading space; empty
            for a run on this machine.
    """
    # The header of the page already shows why an archive was refused.
    if not report.reasons or report.verdict is Verdict.REJECTED:
        return NOTHING
    # As many of the first failures as fit on the page, but at least one.
    rows = list(_failure_rows(report))
    row_reasons = [failure.reason for failure in report.failures[: len(rows)]]
    return Markup(
        element("div", {"id": "reasons"}, _reasons_table(report, row_reasons, environment_options))
        + _filter_form(row_reasons)
        + element("div", {"id": "failed"}, _failed_members(report, rows, environment_options))
    )


def _reasons_table(report: Report, row_reasons: list[str], environment_options: str) -> Markup:
    """Return the table of reasons; `row_reasons` has the reason of each listed failure."""
    columns = {"Reason": "", "Members": "number", "": "rest"}  # the last column contains the bars
    largest = max(report.reasons.values())
    rows = [
        row(
            columns,
            [
                Markup(
                    f"{untrusted(explain(code))} {_code_button(code, row_reasons)}"
                    f"{aside(advise(code, report.run, environment_options))}"
                ),
                figure(f"{members:,}"),
                bar(members, largest, "bad"),
            ],
        )
        for code, members in sort_codes(report.reasons)
    ]
    return table("Failures by reason", columns, rows)


def _code_button(code: str, row_reasons: list[str]) -> Markup:
    """Return a button that filters the rows by a reason, or only the code if no row has it."""
    if code not in row_reasons:
        return element("span", {"class": "mono"}, untrusted(code))
    return element(
        "button",
        {
            "type": "button",
            "class": "link",
            "aria-pressed": "false",
            "value": code,
        },
        untrusted(code),
    )


def _filter_form(row_reasons: list[str]) -> Markup:
    """Return the form that filters the rows; it stays hidden if the page's script does not run.

    `row_reasons` holds the reason for each row.
    """
    choices = [
        element("option", {"value": reason}, trusted(f"{reason} ({row_reasons.count(reason):,})"))
        for reason in sorted(set(row_reasons))
    ]
    return Markup(
        '<form id="filter" role="search" aria-label="Failures" hidden="hidden">'
        '<label>Search <input id="query" type="search" autocomplete="off" spellcheck="false"'
        ' placeholder="key, reason or message"></label>'
        '<label>Reason <select id="reason"><option value="">all</option>'
        f"{''.join(choices)}</select></label>"
        '<output id="matches" for="query reason" role="status"></output></form>'
    )


def _failure_rows(report: Report) -> Iterator[Markup]:
    """Yield the rows of failures, as many as fit within the size limit of the page."""
    bytes_left = MAX_FAILURE_BYTES
    for failure in report.failures:
        reason = clip(failure.reason, MAX_TEXT)
        # All keys begin with the destination's key, so the rows do not show it.
        key = clip(failure.key.removeprefix(report.destination.key), MAX_NAME)
        offset = NOTHING
        if failure.offset is not None:
            offset = figure(f"{failure.offset:,}")
        cells = [
            folded(key or f"(task {clip(failure.task or 'unknown', MAX_TEXT)})"),
            untrusted(reason),
            folded(clip(failure.message, MAX_TEXT)),
            offset,
        ]
        failure_row = row(FAILED_COLUMNS, cells, reason=reason)
        bytes_left -= len(failure_row.encode())
        if bytes_left < 0:
            return
        yield failure_row


def _failed_members(report: Report, rows: list[Markup], environment_options: str) -> Markup:
    """Return the table of failures; its note says how to list the failures that have no row."""
    note = f"Keys below {clip(str(report.destination), 2 * MAX_NAME)}."
    failures_count = report.failed + report.missing
    if failures_count > len(rows):
        command = f"s3unzip show {report.run} --failures{environment_options}"
        note += f" The first {len(rows):,} of {failures_count:,}: {command} lists them all."
    open_attribute = "open" if len(rows) <= MAX_UNFOLDED_FAILURES else ""  # "" adds no attribute
    return element(
        "details",
        {"open": open_attribute},
        element("summary", {}, trusted(f"List {show_count(len(rows), 'failed member')}")),
        table("Failed members", FAILED_COLUMNS, rows, note=note),
    )


def bill(cost: Cost | None) -> Markup:
    """Return the section with the cost of each service; nothing if the cost is not known."""
    if cost is None or not cost.lines:
        return NOTHING
    columns = {"Service": "", "": "part", "Dollars": "number"}  # CSS classes by title
    largest = max(line.dollars for line in cost.lines)
    rows = []
    for line in cost.lines:
        item = element("span", {"class": "item"}, trusted(line.item))
        service = f"{trusted(line.service)} {item}{aside(show_quantity(line.quantity, line.unit))}"
        rows.append(
            row(
                columns,
                [
                    Markup(service),
                    bar(line.dollars, largest, "segment"),
                    figure(show_dollars(line.dollars)),
                ],
            )
        )
    return table(
        "Cost by service",
        columns,
        rows,
        note="Counted requests and seconds at list prices; not a bill.",
        foot=row(columns, [trusted("Total"), NOTHING, figure(show_dollars(cost.total))]),
    )


def details(report: Report) -> Markup:
    """Return the section with the identity of the run, its requests and its warnings."""
    columns = {"Name": "", "Value": "mono"}
    rows = [row(columns, [trusted(name), untrusted(value)]) for name, value in _identify(report)]
    identity = element("div", {"id": "identity"}, table("Identity", columns, rows))
    requests = [(trusted(name), count) for name, count in _count_calls(report.requests)]
    if requests:
        requests += [
            (trusted("of these, retries"), report.requests.retries),
            (trusted("of these, throttled"), report.requests.throttled),
        ]
    warnings = [
        (Markup(f"{untrusted(explain(code))} {untrusted(code)}"), count)
        for code, count in sort_codes(report.warnings)
    ]
    return element(
        "div",
        {"class": "pair"},
        identity,
        element(
            "div",
            {},
            _counts_table("Requests", "Call", requests),
            _counts_table("Warnings", "Warning", warnings, note="Oddities that were tolerated."),
        ),
    )


def _identify(report: Report) -> Iterator[tuple[str, str]]:
    """Yield the names and values that identify the run, followed by its non-default options."""
    yield "Run", report.run
    if report.route is not None:
        yield "Route", report.route.name
    if report.pin is not None:
        yield "Archive size", show_count(report.pin.size, "byte")
        if report.pin.version_id:
            yield "Version id", clip(report.pin.version_id, MAX_NAME)
        if report.pin.etag:
            yield "ETag", clip(report.pin.etag, MAX_NAME)
    defaults = Options()
    for name, value in structs.asdict(report.options).items():
        if value != getattr(defaults, name):
            shown = str(value)
            if isinstance(value, tuple):
                shown = ", ".join(map(str, value))
            yield f"Option {name.replace('_', '-')}", clip(shown, MAX_NAME)


def _counts_table(
    caption: str, title: str, counts: Sequence[tuple[Markup, int]], *, note: str = ""
) -> Markup:
    """Return a table of counts in an element with its own id; nothing if there are no counts."""
    if not counts:
        return NOTHING
    columns = {title: "", "Count": "number"}
    rows = [row(columns, [name, figure(f"{count:,}")]) for name, count in counts]
    return element("div", {"id": caption.lower()}, table(caption, columns, rows, note=note))
