"""Decide what a run would do with each member, without writing anything."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from msgspec import Struct

from s3unzip.context import Context
from s3unzip.explanations import describe
from s3unzip.extraction.existing_objects import find_unchanged
from s3unzip.model import OnConflict, PlannedMember, Request
from s3unzip.planning.plan import check_request
from s3unzip.planning.reading import Reading, read_archive
from s3unzip.stores.calls import Calls
from s3unzip.stores.listing import list_pages


class Decision(Struct, frozen=True, omit_defaults=True):
    """The action of a run on one object: a line of ``s3unzip run --dry-run --json``."""

    key: str
    size: int  # uncompressed bytes
    action: str  # write, overwrite, unchanged, refuse, fail or delete
    reason: str | None = None  # code, if the action is refuse or fail
    message: str | None = None


def decide(
    request: Request,
    context: Context,
    check: Callable[[Reading], None] | None = None,
    *,
    delete_extra: bool = False,
) -> Iterator[Decision]:
    """Yield what a run of `request` would do with each key; nothing is written.

    Args:
        request: archive, destination and options.
        context: the context of this process.
        check: called with the directory; may raise to stop here.
        delete_extra: also yield extra objects to delete, unless a member fails or is refused.
    """
    check_request(request)
    calls = context.calls()
    reading = read_archive(request, context, calls)
    if check is not None:
        check(reading)
    key_of = reading.template.key_of()
    rows = sorted(
        (PlannedMember(member, key_of(member.path)) for member in reading.index.selected),
        key=lambda row: row.key,
    )
    pages = list_pages(
        context.stores.destination(request.destination),
        reading.template.prefix,
        partial(calls.paced, "list"),
    )
    listed_sizes = {listed.key: listed.size for page in pages for listed in page.objects}
    lacks_member = bool(reading.index.failures)  # the destination would lack a member
    for decision in _decide_members(rows, listed_sizes, request, context, calls=calls):
        lacks_member |= decision.action == "refuse"
        yield decision
    for member, finding in reading.index.failures:
        yield Decision(
            key_of(member.path.lstrip("/")),  # a refused name may begin with slashes
            member.size,
            "fail",
            reason=finding.code,
            message=describe(finding.code, finding.message),
        )
    if delete_extra and not lacks_member:
        run_keys = {row.key for row in rows}
        if request.options.marker:
            run_keys.add(reading.template.marker)
        for key, size in listed_sizes.items():
            if key not in run_keys:
                yield Decision(key, size, "delete")


def _decide_members(
    rows: Sequence[PlannedMember],
    listed_sizes: Mapping[str, int],
    request: Request,
    context: Context,
    *,
    calls: Calls,
) -> Iterator[Decision]:
    """Yield the decision about each selected member.

    Args:
        rows: the members, by key.
        listed_sizes: the size in bytes of each object below the run's prefix, by key.
        request: archive, destination and options.
        context: the context of this process.
        calls: counts and retries the requests.
    """
    unchanged = find_unchanged(
        [row for row in rows if row.key in listed_sizes],
        request.options,
        context.stores.destination(request.destination),
        calls,
        threads=context.tuning.puts_in_flight,
    )
    for row in rows:
        key = row.key
        size = row.member.size
        if row.member.index in unchanged:
            yield Decision(key, size, "unchanged")
        elif key not in listed_sizes:
            yield Decision(key, size, "write")
        elif request.options.on_conflict is OnConflict.NEVER:
            yield Decision(key, size, "refuse", "exists")
        else:
            yield Decision(key, size, "overwrite")
