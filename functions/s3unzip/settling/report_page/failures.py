"""The failures: the members of each reason, and a table that the page's script searches."""

from collections.abc import Iterator

from s3unzip.figures import show_count
from s3unzip.model import Failure, Report, Verdict
from s3unzip.settling.report_page.facts import MAX_NAME, MAX_TEXT, Ranked, Shown, rank
from s3unzip.settling.report_page.markup import (
    NOTHING,
    Column,
    Markup,
    aside,
    bar,
    clip,
    element,
    figure,
    folded,
    plain,
    row,
    table,
    text,
)

MAX_FAILURE_BYTES = 1_000_000  # for the rows of all failures together
MAX_UNFOLDED_FAILURES = 10  # longer lists begin folded, so that the cost is on the first screen
FAILED_COLUMNS = (
    Column("Key", "mono key", is_header=True),
    Column("Reason", "mono reason"),
    Column("Message"),
    Column("Offset", "number offset"),
)


def failures(shown: Shown) -> Markup:
    """Return the failures; nothing if there are none."""
    report = shown.report
    counts = report.reasons
    if report.verdict is Verdict.REJECTED:  # the header of the page has the one reason
        counts = {}
    reasons = rank(counts, shown)
    rows = list(_failure_rows(report))
    if not (reasons or rows):
        return NOTHING
    listed = [failure.reason for failure in report.failures[: len(rows)]]
    content = [element("div", {"id": "reasons"}, _reasons(reasons, listed))]
    if rows:
        content.append(_filter(listed))
        content.append(element("div", {"id": "failed"}, _failed_members(shown, rows)))
    return Markup("".join(content))


def _reasons(reasons: list[Ranked], listed: list[str]) -> Markup:
    """Return the table of reasons; `listed` has the reason of each failure that has a row."""
    if not reasons:
        return NOTHING
    columns = (
        Column("Reason", is_header=True),
        Column("Members", "number"),
        Column("", "rest"),
    )
    largest = max(reason.members for reason in reasons)
    rows = [
        row(
            columns,
            [
                Markup(f"{text(reason.sentence)} {_reason(reason, listed)}{aside(reason.advice)}"),
                figure(f"{reason.members:,}"),
                bar(reason.members, largest, "bad"),
            ],
        )
        for reason in reasons
    ]
    return table("Failures by reason", columns, rows)


def _reason(reason: Ranked, listed: list[str]) -> Markup:
    """Return a button that filters the rows by a reason; only the code if no row has the reason."""
    if reason.code not in listed:
        return element("span", {"class": "mono"}, text(reason.code))
    return element(
        "button",
        {
            "type": "button",
            "class": "link",
            "aria-pressed": "false",
            "value": reason.code,
        },
        text(reason.code),
    )


def _filter(listed: list[str]) -> Markup:
    """Return the form that filters the table; it stays hidden without the page's script."""
    search = Markup(
        '<label>Search <input id="query" type="search" autocomplete="off" spellcheck="false"'
        ' placeholder="key, reason or message"></label>'
    )
    choices = [Markup('<option value="">all</option>')]
    choices += [
        element("option", {"value": reason}, plain(f"{reason} ({listed.count(reason):,})"))
        for reason in sorted(set(listed))
    ]
    choice = element("label", {}, plain("Reason "), element("select", {"id": "reason"}, *choices))
    matches = element("output", {"id": "matches", "for": "query reason", "role": "status"})
    attributes = {"id": "filter", "role": "search", "aria-label": "Failures", "hidden": "hidden"}
    controls = (search, choice, matches)
    return element("form", attributes, *controls)


def _failure_rows(report: Report) -> Iterator[Markup]:
    """Yield the rows of the failures that fit the page's budget."""
    bytes_left = MAX_FAILURE_BYTES
    for failure in report.failures:
        failure_row = _failure_row(failure, report.destination.key)
        bytes_left -= len(failure_row.encode())
        if bytes_left < 0:
            return
        yield failure_row


def _failure_row(failure: Failure, prefix: str) -> Markup:
    """Return the row of a failure; the row shows its key without `prefix`, which all keys have."""
    reason = clip(failure.reason, MAX_TEXT)
    key = clip(failure.key.removeprefix(prefix), MAX_NAME)
    offset = NOTHING
    if failure.offset is not None:
        offset = figure(f"{failure.offset:,}")
    return row(
        FAILED_COLUMNS,
        [
            folded(key or f"(task {clip(failure.task or 'unknown', MAX_TEXT)})"),
            text(reason),
            folded(clip(failure.message, MAX_TEXT)),
            offset,
        ],
        reason=reason,
    )


def _failed_members(shown: Shown, rows: list[Markup]) -> Markup:
    """Return the table of failures; its note tells how to list those that have no row."""
    report = shown.report
    note = f"Keys below {clip(str(report.destination), 2 * MAX_NAME)}."
    lost = report.failed + report.missing
    if lost > len(rows):
        command = f"s3unzip show {report.run} --failures{shown.environment_options}"
        note += f" The first {len(rows):,} of {lost:,}: {command} lists them all."
    summary = element("summary", {}, plain(f"List {show_count(len(rows), 'failed member')}"))
    is_open = "open" if len(rows) <= MAX_UNFOLDED_FAILURES else ""
    return element(
        "details",
        {"open": is_open},
        summary,
        table("Failed members", FAILED_COLUMNS, rows, note=note),
    )
