"""The rule on conflicts: whether a member is written if the destination has its key.

================== ==========================================================
``overwrite``      write the member; ask nothing
``skip-unchanged`` keep an object that is the member; overwrite any other
``never``          keep an object that is the member; fail if another object has the key
================== ==========================================================

Ask before the write, because S3 bills a conditional PUT that it refuses. `resolve_conflict` asks
for one member, `find_unchanged` for many small ones, by LIST and HEAD. Another writer may create
the key after the question: then the store refuses the conditional write, and `explain_refusal` asks
again.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from os.path import commonprefix

from msgspec.structs import replace

from s3unzip.extraction.comparison import find_object, has_content, is_member, read_stored
from s3unzip.extraction.forms import has_stored_size
from s3unzip.model import OnConflict, Options, Outcome, PlannedMember, Status
from s3unzip.runs.step import Step
from s3unzip.stores.ahead import map_ahead
from s3unzip.stores.calls import Calls
from s3unzip.stores.listing import PAGE_KEYS, list_pages
from s3unzip.stores.ports import Destination

LIST_PRICE = 12  # HEADs that one LIST costs: https://aws.amazon.com/s3/pricing/


def resolve_conflict(
    row: PlannedMember, run_step: Step, read_crc: Callable[[], int] | None = None
) -> Outcome | None:
    """Return the outcome of a member that must not be written; None: write it.

    Args:
        row: the member.
        run_step: its destination may have the key.
        read_crc: computes the CRC-32 of the content. It is called if the archive does not declare
            it, and the object has the member's size. `MemberError`: the content is bad.
    """
    options = run_step.run.options
    if options.on_conflict is OnConflict.OVERWRITE:
        return None
    stored = find_object(row.key, options, run_step.destination, run_step.calls)
    if stored is None:
        return None
    if has_stored_size(stored.size, row.member, options):
        if not row.member.declares_crc and read_crc is not None:
            row = with_crc(row, read_crc())
        if row.member.cipher is not None and stored.crc32 is None:
            # A large AE-2 member was written before its CRC-32 was known.
            is_gzip = options.as_gzip is not None
            read = partial(read_stored, run_step.destination, row.key, is_gzip=is_gzip)
            stored = run_step.calls.paced("get", read) or stored
    if has_content(stored, row.member, options):
        return row.outcome(Status.UNCHANGED, stored.size)
    if options.on_conflict is OnConflict.NEVER:
        return _exists(row)
    return None


def explain_refusal(row: PlannedMember, run_step: Step) -> Outcome:
    """Return the outcome of a member whose write was refused because the key exists."""
    return resolve_conflict(row, run_step) or _exists(row)


def _exists(row: PlannedMember) -> Outcome:
    message = "the key exists with other content; --on-conflict never keeps it"
    return Outcome.failed(row.member.index, row.key, row.finding("exists", message))


def with_crc(row: PlannedMember, crc: int) -> PlannedMember:
    """Return `row` with the CRC-32 of its content, if the archive does not declare it."""
    if row.member.declares_crc:
        return row
    return replace(row, member=row.member.with_crc(crc))


def find_unchanged(
    rows: Sequence[PlannedMember],
    options: Options,
    destination: Destination,
    calls: Calls,
    threads: int,
) -> set[int]:
    """Return the indexes of members that the destination has; none if all are overwritten.

    LIST gives sizes, a thousand keys a request; HEAD is asked only if the sizes agree. If many
    other keys lie between the members' keys, the LIST stops after a few pages, before it costs more
    than it saves, and HEAD decides for all members that later pages may have.
    """
    if not rows or options.on_conflict is OnConflict.OVERWRITE:
        return set()
    suspects = list(_find_suspects(rows, options, destination, calls))

    def ask(row: PlannedMember) -> bool:
        return is_member(row, options, destination, calls)

    answers = map_ahead(ask, suspects, threads, 4 * threads)
    return {row.member.index for row, is_same in zip(suspects, answers, strict=True) if is_same}


def _find_suspects(
    rows: Sequence[PlannedMember], options: Options, destination: Destination, calls: Calls
) -> Iterator[PlannedMember]:
    """Yield the rows whose objects may exist with the same size.

    A listing costs as much as `LIST_PRICE` HEADs a page. Where the keys lie far apart it has many
    pages of other keys: after `max_pages` the rows behind the last listed key are suspects unseen.
    """
    by_key = sorted(rows, key=lambda row: row.key)  # code points have the order of their UTF-8
    max_pages = min(2 + 2 * len(rows) // PAGE_KEYS, len(rows) // LIST_PRICE)
    if not max_pages:
        yield from by_key
        return
    unlisted = {row.key: row for row in by_key}
    first = by_key[0].key
    last = by_key[-1].key
    prefix = commonprefix([first, last])  # noqa: RUF071 - of characters: keys have no folders
    list_page = partial(calls.paced, "list")
    pages = list_pages(destination, prefix, list_page, first, last=last)
    for number, page in enumerate(pages, 1):
        for listed in page.objects:
            row = unlisted.pop(listed.key, None)
            if row is not None and has_stored_size(listed.size, row.member, options):
                yield row
        if number == max_pages and not page.is_last:
            listed_to = ""
            if page.in_order and page.objects:
                listed_to = page.objects[-1].key
            yield from (row for row in unlisted.values() if row.key > listed_to)
            return
