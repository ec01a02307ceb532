"""Listings of a destination: page by page, until the store returns no token for a next page.

Rules:

* Each page is one call, so a fault repeats only the request for one page. The token from the store
  marks the beginning of the next page.
* A listing ends even if the store never stops returning tokens: after `MAX_PAGES` pages, or at a
  page that begins with the first key of an earlier page.
* S3 lists keys in byte order. Gateways to file systems list folder by folder, and some stores list
  keys in no particular order. `Page.in_order` tells whether all keys so far are sorted. Only a
  sorted listing may end at the first key after `last`.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import count, islice
from operator import lt
from typing import TypeVar

from msgspec import Struct

from s3unzip.errors import StorageError
from s3unzip.stores.ports import Destination, ListPage, StoredObject

T = TypeVar("T")
PAGE_KEYS = 1_000  # maximum number of keys in a page, as in S3
MAX_PAGES = 10_000  # maximum number of pages in a listing: ten million keys
BEYOND = "\U0010ffff" * 4  # sorts after any key used in practice


def bound_pages(pages: Iterable[T], name: str) -> Iterator[T]:
    """Yield the pages of a listing; raise `StorageError` if there are more than `MAX_PAGES`."""
    for number, page in enumerate(pages):
        if number == MAX_PAGES:
            raise StorageError(f"{name}: the store lists more than {MAX_PAGES:,} pages")
        yield page


def cut_page(objects: Iterator[StoredObject]) -> ListPage:
    """Return the first page of sorted objects, and the token for the next page.

    The token is the smallest key that can follow the page. If the page is not full, no objects
    remain, and the token is None.
    """
    page = list(islice(objects, PAGE_KEYS))
    if len(page) < PAGE_KEYS:
        return page, None
    return page, page[-1].key + "\0"


class Page(Struct, frozen=True):
    """The objects on one page whose keys are within the bounds of the listing."""

    objects: list[StoredObject]
    is_last: bool
    in_order: bool  # whether all keys up to the end of this page are sorted


def list_pages(
    destination: Destination,
    prefix: str,
    call: Callable[[Callable[[], ListPage]], ListPage],
    first: str = "",
    last: str = BEYOND,
) -> Iterator[Page]:
    """Yield the objects below `prefix` with keys from `first` to `last`, one page at a time.

    Args:
        destination: destination to list.
        prefix: prefix of the keys to list.
        call: function, such as `Calls.paced`, that sends a request and repeats it after a fault.
        first: smallest key to list.
        last: largest key to list.

    Raises:
        StorageError: the listing does not end.
    """
    token: str | None = None
    first_keys = set[str]()  # first key of each page so far
    previous_key = ""  # the last key of the pages so far
    in_order = True
    for _ in bound_pages(count(), prefix):  # `bound_pages` ends the loop
        objects, token = call(partial(destination.list_page, prefix, first, last, token=token))
        keys = [listed.key for listed in objects]
        if keys:
            if keys[0] in first_keys:
                raise StorageError(f"{prefix}: the store lists {keys[0]!r} again and again")
            first_keys.add(keys[0])
            # Compare each key with the key before it. `map` stops at the end of the shorter list.
            in_order = in_order and all(map(lt, [previous_key, *keys], keys))
            previous_key = keys[-1]
        within = [  # the store may return keys with another prefix or beyond the bounds
            listed
            for listed in objects
            if first <= listed.key <= last and listed.key.startswith(prefix)
        ]
        # If the keys are in order, all keys on later pages come after `last`.
        is_last = token is None or (in_order and previous_key >= last)
        yield Page(within, is_last, in_order)
        if is_last:
            return
