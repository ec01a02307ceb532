"""Listings of a destination: page after page, until the store returns no token for another one.

Rules:

* A page is one call, so it is retried alone. The store's token says where the next page begins.
* A listing ends even if the store always returns a token: after `MAX_PAGES` pages, and at a page
  that begins with the first key of an earlier page.
* S3 lists keys in the order of their bytes. Gateways to file systems list folder by folder, other
  stores in no order. Each page says whether all keys so far were in order. Only if they were, the
  listing ends at the first key after `last`.
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
PAGE_KEYS = 1_000  # keys of one page, as in S3
MAX_PAGES = 10_000  # pages of one listing: ten million keys
BEYOND = "\U0010ffff" * 4  # sorts after any key that people use


def bound_pages(pages: Iterable[T], name: str) -> Iterator[T]:
    """Yield the pages that a store lists; `StorageError`: there are more than `MAX_PAGES`."""
    for number, page in enumerate(pages):
        if number == MAX_PAGES:
            raise StorageError(f"{name}: the store lists more than {MAX_PAGES:,} pages")
        yield page


def cut_page(objects: Iterator[StoredObject]) -> ListPage:
    """Return the first page of objects that come in order, and the smallest key after it.

    The key is the token of the next page. It is None if no object may follow.
    """
    page = list(islice(objects, PAGE_KEYS))
    if len(page) < PAGE_KEYS:
        return page, None
    return page, page[-1].key + "\0"


class Page(Struct, frozen=True):
    """The objects of one page whose keys are within the bounds of the listing."""

    objects: list[StoredObject]
    is_last: bool
    in_order: bool  # whether the keys of this page and of all pages before it are in order


def list_pages(
    destination: Destination,
    prefix: str,
    call: Callable[[Callable[[], ListPage]], ListPage],
    first: str = "",
    last: str = BEYOND,
) -> Iterator[Page]:
    """Yield the objects below `prefix` with keys from `first` to `last`, a page at a time.

    Args:
        destination: lists the pages.
        prefix: begins the keys.
        call: runs a request and repeats it after a fault, as `Calls.paced` does.
        first: the smallest key.
        last: the largest key.

    Raises:
        StorageError: the store does not end its listing.
    """
    token: str | None = None
    first_keys = set[str]()  # the first key of each page so far
    latest = ""
    in_order = True
    for _ in bound_pages(count(), prefix):  # an endless loop, except for the bound
        objects, token = call(partial(destination.list_page, prefix, first, last, token=token))
        keys = [listed.key for listed in objects]
        if keys:
            if keys[0] in first_keys:
                raise StorageError(f"{prefix}: the store lists {keys[0]!r} again and again")
            first_keys.add(keys[0])
            in_order = in_order and latest < keys[0] and all(map(lt, keys, keys[1:]))
            latest = keys[-1]
            # All keys of a page in order are within the bounds if its first and last key are.
            if not (in_order and first <= keys[0] and latest <= last):
                objects = [listed for listed in objects if first <= listed.key <= last]
        # In order, all keys of later pages come after `last`.
        is_last = token is None or (in_order and latest >= last)
        yield Page(objects, is_last, in_order)
        if is_last:
            return
