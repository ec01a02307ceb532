"""What a run would write, member by member, found by reading only."""

from collections.abc import Callable, Collection, Iterator, Sequence

from msgspec import Struct

from s3unzip.context import Context
from s3unzip.explanations import describe
from s3unzip.extraction.objects import BEYOND, find_unchanged, list_pages
from s3unzip.model import OnConflict, Options, PlannedMember, Request
from s3unzip.planning.plan import Reading, check_options, read_archive
from s3unzip.planning.select import MARKER, parse_template
from s3unzip.stores.calls import Calls
from s3unzip.stores.ports import ListedObject


class Decision(Struct, frozen=True, omit_defaults=True):
    """What a run would do about one member: a line of ``s3unzip run --dry-run --json``."""

    key: str
    size: int  # uncompressed bytes
    action: str  # write, overwrite, unchanged, refuse, fail or delete
    reason: str | None = None  # code, where it is refused or fails
    message: str | None = None


def decide(
    request: Request,
    context: Context,
    check: Callable[[Reading], None] | None = None,
    *,
    delete_extra: bool = False,
) -> Iterator[Decision]:
    """Yield what a run of `request` would do, by key; nothing is written.

    Args:
        check: called with what was read of the archive; may raise to stop here.
        delete_extra: whether the run would delete what is no member. It would not if a member
            fails or is refused.
    """
    check_options(request)
    calls = context.calls()
    reading = read_archive(request, context, calls)
    if check is not None:
        check(reading)
    key_of = reading.template.key_of()
    rows = sorted(
        (PlannedMember(member, key_of(member.path)) for member in reading.selected),
        key=lambda row: row.key,
    )
    prefix, options = parse_template(request).prefix, request.options
    listed, unchanged = _compare(rows, prefix, request, context, calls)
    there = {one.key for one in listed}
    refused = False
    for row in rows:
        exists, same = row.key in there, row.member.index in unchanged
        decision = _decide_row(row, options, exists=exists, same=same)
        refused = refused or decision.action == "refuse"
        yield decision
    for member, finding in reading.failures:
        words = describe(finding.code, finding.message)
        yield Decision(key_of(member.path), member.size, "fail", finding.code, words)
    if delete_extra and not refused and not reading.failures:
        kept = {row.key for row in rows} | ({prefix + MARKER} if options.marker else set())
        yield from (Decision(one.key, one.size, "delete") for one in listed if one.key not in kept)


def _compare(
    rows: Sequence[PlannedMember], prefix: str, request: Request, context: Context, calls: Calls
) -> tuple[list[ListedObject], Collection[int]]:
    """Return what is below `prefix`, and the indexes of members that are there unchanged."""
    destination = context.stores.destination(request.destination)
    pages = list_pages(destination, prefix, prefix, prefix + BEYOND, calls)
    listed = [one for page in pages for one in page]
    there = {one.key for one in listed}
    present = [row for row in rows if row.key in there]
    at_once = context.tuning.puts_in_flight
    return listed, find_unchanged(present, request.options, destination, calls, at_once)


def _decide_row(row: PlannedMember, options: Options, *, exists: bool, same: bool) -> Decision:
    """Return what becomes of a member, by whether its key exists and holds the same content."""
    if same:
        return Decision(row.key, row.member.size, "unchanged")
    if exists and options.on_conflict is OnConflict.NEVER:
        return Decision(row.key, row.member.size, "refuse", "exists")
    return Decision(row.key, row.member.size, "overwrite" if exists else "write")
