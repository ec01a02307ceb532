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
    key_of = reading.template.key_of()
    options = request.options
    rows = sorted(
        (PlannedMember(member, key_of(member.path)) for member in reading.selected),
        key=lambda row: row.key,
    )
    prefix = parse_template(request).prefix
    destination = context.stores.destination(request.destination)
    pages = list_pages(destination, prefix, partial(calls.paced, "list"))
    listed_sizes = {listed.key: listed.size for page in pages for listed in page.objects}
    present = [row for row in rows if row.key in listed_sizes]
    unchanged = find_unchanged(
        present, options, destination, calls, threads=context.tuning.puts_in_flight
    )
    refused = bool(reading.failures)
    for row in rows:
        key = row.key
        size = row.member.size
        if row.member.index in unchanged:
            yield Decision(key, size, "unchanged")
        elif key not in listed_sizes:
            yield Decision(key, size, "write")
        elif options.on_conflict is OnConflict.NEVER:
            refused = True
            yield Decision(key, size, "refuse", "exists")
        else:
            yield Decision(key, size, "overwrite")
    for member, finding in reading.failures:
        key = key_of(member.path.lstrip("/"))
        explanation = describe(finding.code, finding.message)
        yield Decision(key, member.size, "fail", reason=finding.code, message=explanation)
    if delete_extra and not refused:
        right_keys = {row.key for row in rows}
        if options.marker:
            right_keys.add(prefix + MARKER)
        for key, size in listed_sizes.items():
            if key not in right_keys:
                yield Decision(key, size, "delete")
