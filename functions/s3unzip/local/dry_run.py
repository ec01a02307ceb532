"""What a run would write, member by member, found by reading only."""

from collections.abc import Callable, Iterator
from functools import partial

from msgspec import Struct

from s3unzip.context import Context
from s3unzip.explanations import describe
from s3unzip.extraction.conflicts import find_unchanged
from s3unzip.model import OnConflict, PlannedMember, Request
from s3unzip.planning.plan import check_request
from s3unzip.planning.reading import Reading, read_archive
from s3unzip.planning.select import MARKER, parse_template
from s3unzip.stores.listing import list_pages


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

    `check` is called with what was read of the archive, and may raise to stop here. A run that is
    to `delete_extra` would delete what is no member, unless a member fails or is refused.
    """
    check_request(request)
    calls = context.calls()
    reading = read_archive(request, context, calls)
    if check is not None:
        check(reading)
    key_of, options = reading.template.key_of(), request.options
    rows = sorted(
        (PlannedMember(member, key_of(member.path)) for member in reading.selected),
        key=lambda row: row.key,
    )
    prefix, place = parse_template(request).prefix, context.stores.destination(request.destination)
    pages = list_pages(place, prefix, partial(calls.paced, "list"))
    listed = {one.key: one.size for page in pages for one in page.objects}
    present = [row for row in rows if row.key in listed]
    unchanged = find_unchanged(present, options, place, calls, context.tuning.puts_in_flight)
    refused = bool(reading.failures)
    for row in rows:
        key, size = row.key, row.member.size
        if row.member.index in unchanged:
            yield Decision(key, size, "unchanged")
        elif key not in listed:
            yield Decision(key, size, "write")
        elif options.on_conflict is OnConflict.NEVER:
            refused = True
            yield Decision(key, size, "refuse", "exists")
        else:
            yield Decision(key, size, "overwrite")
    for member, finding in reading.failures:
        words = describe(finding.code, finding.message)
        yield Decision(key_of(member.path.lstrip("/")), member.size, "fail", finding.code, words)
    if delete_extra and not refused:
        kept = {row.key for row in rows} | ({prefix + MARKER} if options.marker else set())
        yield from (Decision(key, listed[key], "delete") for key in listed if key not in kept)
