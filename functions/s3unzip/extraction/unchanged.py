"""Which of many members the destination has already: by LIST and HEAD."""

from collections.abc import Iterator, Sequence
from functools import partial
from os.path import commonprefix

from s3unzip.extraction.comparison import is_member
from s3unzip.extraction.forms import has_stored_size
from s3unzip.model import OnConflict, Options, PlannedMember
from s3unzip.stores.ahead import map_ahead
from s3unzip.stores.calls import Calls
from s3unzip.stores.listing import PAGE_KEYS, list_pages
from s3unzip.stores.ports import Destination

LIST_PRICE = 12  # HEADs that one LIST costs: https://aws.amazon.com/s3/pricing/


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
    """Yield the rows whose objects may exist with the same size."""
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
