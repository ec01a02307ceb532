"""What a run would write, member by member, found by reading only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from s3unzip.explanations import describe
from s3unzip.model import OnConflict, PlannedMember
from s3unzip.objects.existing import find_unchanged
from s3unzip.objects.stored import check_form
from s3unzip.planning.keys import parse_template
from s3unzip.planning.reading import read_archive

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from s3unzip.context import Context
    from s3unzip.model import Request
    from s3unzip.planning.reading import Reading

LAST = "\U0010ffff" * 4  # after any key that people give


class Decision(Struct, frozen=True, omit_defaults=True):
    """What a run would do about one member: a line of ``s3unzip run --dry-run --json``."""

    key: str
    size: int  # uncompressed bytes
    action: str  # write, overwrite, unchanged, refuse or fail
    reason: str | None = None  # code, where it is refused or fails
    message: str | None = None


def decide(
    request: Request, context: Context, judge: Callable[[Reading], None] | None = None
) -> Iterator[Decision]:
    """Yield what a run of `request` would do, by key; nothing is written.

    Raises:
        NothingSelectedError: `judge` found no member.
        RejectedError: the archive is refused.
        UsageError: the destination cannot hold what `request` asks for.
        StorageError: a store refused.
        ServiceFaultError: a store failed beyond the retries.
    """
    check_form(request)
    calls = context.calls()
    reading = read_archive(request, context, calls)
    if judge is not None:
        judge(reading)
    key_of = reading.template.key_of()
    rows = sorted(
        (PlannedMember(member, key_of(member.path)) for member in reading.selected),
        key=lambda row: row.key,
    )
    destination = context.stores.destination(request.destination)
    prefix = parse_template(request).prefix
    listed = calls.run(
        "list", lambda: list(destination.list_objects(prefix, prefix, prefix + LAST))
    )
    there = {one.key for one in listed}
    present = [row for row in rows if row.key in there]
    options = request.options
    unchanged = find_unchanged(
        present, options, destination, calls, context.tuning.puts_in_flight
    ).keys()
    for row in rows:
        action = "write"
        if row.member.index in unchanged:
            action = "unchanged"
        elif row.key in there:
            action = "refuse" if options.on_conflict is OnConflict.NEVER else "overwrite"
        reason = "exists" if action == "refuse" else None
        yield Decision(row.key, row.member.size, action, reason)
    for failure in reading.failures:
        finding = failure.finding
        words = describe(finding.code, finding.message)
        yield Decision(key_of(failure.path), failure.size, "fail", finding.code, words)
