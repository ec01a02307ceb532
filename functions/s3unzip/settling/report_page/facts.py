"""The facts of a run, one tile each."""

from collections.abc import Iterator

from s3unzip.figures import choose_form, show_bytes, show_dollars, show_seconds, show_share
from s3unzip.model import Report, Requests, Verdict
from s3unzip.pricing import Cost
from s3unzip.settling.report_page.contents import Shown
from s3unzip.settling.report_page.markup import NO_BREAK_SPACE, Markup, element, figure, plain

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


def facts(shown: Shown) -> Markup:
    """Return the tiles of a run."""
    tiles = [*_member_tiles(shown.report), *_work_tiles(shown.report)]
    if shown.cost:
        tiles.append(_cost_tile(shown.report, shown.cost))
    columns = max(len(tiles), 3)
    if len(tiles) > 5:  # two rows that are as equal as can be
        columns = (len(tiles) + 1) // 2
    return element("dl", {"id": "facts", "class": f"facts columns-{columns}"}, *tiles)


def _tile(name: str, value: Markup, note: str = "", tone: str = "") -> Markup:
    amount = element("div", {"class": f"value {tone}".rstrip()}, value)
    remark = element("div", {"class": "note"}, plain(note))
    return element("div", {}, element("dt", {}, plain(name)), element("dd", {}, amount, remark))


def _member_tiles(report: Report) -> Iterator[Markup]:
    """Yield how many members were extracted, failed, and have no outcome."""
    if report.verdict is Verdict.REJECTED:
        return
    asides: list[str] = []
    if report.unchanged:
        asides.append(f"{report.unchanged:,} unchanged")
    if report.excluded:
        asides.append(f"{report.excluded:,} not selected")
    if report.directories:
        asides.append(_count_directories(report.directories))
    note = ", ".join(asides) or f"of {report.members:,}"
    yield _tile("Members extracted", figure(f"{report.extracted:,}"), note)
    files = max(report.members - report.directories, report.failed + report.missing)
    # "Failed 0" beside members without an outcome would say that all is well.
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


def _count_directories(count: int) -> str:
    return f"{count:,} {choose_form(count, 'directory', 'directories')}"


def _work_tiles(report: Report) -> Iterator[Markup]:
    """Yield times, bytes, tasks and requests; those that are 0 are left out."""
    seconds = max(0.0, report.finished - report.started)
    plan_note = ""
    if report.plan_seconds:
        plan_note = f"the plan took {show_seconds(report.plan_seconds)}"
    yield _tile("Duration", figure(show_seconds(seconds)), plan_note)
    if report.first_object is not None:
        began = report.event_time or report.started
        origin = "after the upload" if report.event_time else "after the start"
        yield _tile("First object", figure(show_seconds(report.first_object - began)), origin)
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
    calls = sum(count for _, count in count_calls(report.requests))
    if calls:
        retries = "none retried"
        if report.requests.retries:
            throttled = f"{report.requests.throttled:,} throttled"
            retries = f"{report.requests.retries:,} retried, {throttled}"
        yield _tile("Requests", figure(f"{calls:,}"), retries)


def _rate_tiles(report: Report, seconds: float) -> Iterator[Markup]:
    """Yield the rate, if there is one: not of one member, not of a run that mostly waited."""
    members = report.extracted + report.unchanged
    worked = report.plan_seconds + report.task_seconds > seconds / 2
    if members > 1 and seconds and worked:
        unit = element("small", {}, figure(" members/s"))
        value = Markup(figure(f"{members / seconds:,.0f}") + unit)
        yield _tile("Rate", value, f"{show_bytes(report.bytes_out / seconds)}/s written")


def count_calls(requests: Requests) -> list[tuple[str, int]]:
    """Return the title and the count of each kind of request that was sent."""
    counts = [(title, int(getattr(requests, name))) for name, title in REQUEST_TITLES.items()]
    return [(title, count) for title, count in counts if count]


def _cost_tile(report: Report, cost: Cost) -> Markup:
    """Return the cost of the run, and of a TB or of a million members."""
    unit_price = ""
    if report.extracted:
        # Small members cost by the PUT, large ones by the byte.
        if report.bytes_out > report.extracted * 1e6:
            unit_price = f"{show_dollars(cost.total / report.bytes_out * 1e12)} a TB written"
        else:
            unit_price = f"{show_dollars(cost.total / report.extracted * 1e6)} a million members"
    return _tile("Cost", figure(show_dollars(cost.total)), unit_price)
