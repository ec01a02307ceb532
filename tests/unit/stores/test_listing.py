"""Listings end by what was read, in whatever order and for however long a store lists."""

from itertools import count, islice

import pytest

from s3unzip.errors import StorageError
from s3unzip.stores.listing import MAX_PAGES, list_pages
from s3unzip.stores.memory import NowhereDestination
from s3unzip.stores.ports import ListedObject, ListPage


class ScriptedStore(NowhereDestination):
    """Lists the keys of `pages`, the last page with the next token for ever if it is `endless`."""

    def __init__(self, *pages: list[str], endless: bool = False) -> None:
        self.pages = pages
        self.endless = endless
        self.asked = 0

    def list_page(self, prefix: str, first: str, last: str, token: str | None) -> ListPage:
        number = int(token or "0")
        self.asked += 1
        page = self.pages[min(number, len(self.pages) - 1)]
        is_last = number + 1 >= len(self.pages) and not self.endless
        return [ListedObject(key, 1) for key in page], None if is_last else str(number + 1)


@pytest.mark.parametrize(
    ("pages", "keys", "in_order", "asked"),
    [
        ([["a", "b"], ["c"], ["d"]], "bc", True, 2),  # "c" is the last key that is asked for
        ([["b"], ["z"], ["zz"]], "b", True, 2),
        ([["b"], [], ["c"]], "bc", True, 3),
        ([["c", "b"], ["a"]], "cb", False, 2),  # no order, as in directory buckets
        ([["z", "b"], ["c"]], "bc", False, 2),  # a key after the last one does not end it
        ([["b", "b"]], "bb", False, 1),
    ],
)
def test_a_listing_has_all_keys_that_are_asked_for(
    pages: list[list[str]], keys: str, *, in_order: bool, asked: int
) -> None:
    """Keys from "b" to "c" come in the store's order, which is said, by as few pages as can be."""
    store = ScriptedStore(*pages)
    listed = list(list_pages(store, "", lambda call: call(), "b", "c"))
    assert "".join(one.key for page in listed for one in page.objects) == keys
    assert (listed[-1].in_order, listed[-1].is_last, store.asked) == (in_order, True, asked)


class EndlessStore(NowhereDestination):
    """Lists a new key on each page, for ever."""

    def __init__(self) -> None:
        self.numbers = count()

    def list_page(self, prefix: str, first: str, last: str, token: str | None) -> ListPage:
        number = next(self.numbers)
        return [ListedObject(f"{number:09}", 1)], str(number)


@pytest.mark.parametrize(
    ("store", "pages"),
    [
        (ScriptedStore(["a"], ["b", "c"], endless=True), 2),  # the page comes again
        (ScriptedStore(["a"], [], endless=True), MAX_PAGES),
        (EndlessStore(), MAX_PAGES),
    ],
    ids=["the same page", "empty pages", "new keys"],
)
def test_a_store_does_not_decide_when_a_listing_ends(store: NowhereDestination, pages: int) -> None:
    """New tokens without an end are a refusal in plain words after as many pages as may be."""
    listing = list_pages(store, "out/", lambda call: call())
    assert len(list(islice(listing, pages - 1))) == pages - 1
    with pytest.raises(StorageError, match=r"^out/: the store lists "):
        list(listing)
