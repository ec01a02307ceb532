"""Listing the objects below a prefix page by page: a page that fails is asked for again alone."""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from s3unzip.stores.calls import Calls
    from s3unzip.stores.ports import Destination, ListedObject

PAGE = 1_000  # keys of one LIST
BEYOND = "\U0010ffff" * 4  # sorts after any key that people use


def list_pages(
    destination: Destination, prefix: str, first: str, last: str, calls: Calls
) -> Iterator[list[ListedObject]]:
    """Yield the objects below `prefix` with keys from `first` to `last`, a page at a time."""

    def read_page(begin: str) -> list[ListedObject]:
        return list(islice(destination.list_objects(prefix, begin, last), PAGE))

    while page := calls.paced("list", partial(read_page, first)):
        yield page
        if len(page) < PAGE or page[-1].key == last:
            return
        first = page[-1].key + "\0"  # the smallest key after it
