"""The keys of an archive as file systems compare them, by hashes instead of text.

The memory for a key does not depend on its length.
"""

from __future__ import annotations

import unicodedata
from array import array
from itertools import groupby, islice
from typing import TYPE_CHECKING

from s3unzip.zip.directory.names import has_long_marks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

_CHUNK = 8192
HASH_COST = 100  # bytes of a hash in a set, with room for growing


def fold_key(key: str) -> str:
    """Return the form of a key for file systems that ignore case or Unicode form.

    Keys with more combining marks in a row than any language has are not normalised, because that
    takes quadratic time.
    """
    if key.isascii():
        return key.lower()
    if has_long_marks(key):
        return key.casefold()
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", key).casefold())


def fold_form(key: str) -> str:
    """Return the form of a key for file systems that ignore only Unicode form."""
    return key if has_long_marks(key) else unicodedata.normalize("NFC", key)


class FoldedKeys:
    """The hashes of all folded keys, and which of them are not unique."""

    def __init__(self) -> None:
        self._hashes: set[int] = set()
        self._repeated: set[int] = set()

    def take(self, keys: Sequence[str]) -> None:
        """Record keys; a collision marks all of them, so that `repeated` compares them."""
        folds = str.lower if all(map(str.isascii, keys)) else fold_key
        hashes = list(map(hash, map(folds, keys)))
        before = len(self._hashes)
        self._hashes.update(hashes)
        if len(self._hashes) - before != len(hashes):
            self._repeated.update(hashes)

    def __contains__(self, key: str) -> bool:
        return hash(fold_key(key)) in self._hashes

    def repeated(self, keys: Iterable[tuple[int, str]]) -> Iterator[array[int]]:
        """Yield the places, ascending, of each group of keys that may be one key when folded.

        `keys` are places and keys, as they were taken.
        """
        if not self._repeated:
            return
        hashes, places = array("q"), array("I")
        for place, key in keys:
            mark = hash(fold_key(key))
            if mark in self._repeated:
                hashes.append(mark)
                places.append(place)
        order = array("I", sorted(range(len(hashes)), key=hashes.__getitem__))
        for _, group in groupby(order, hashes.__getitem__):
            found = array("I", map(places.__getitem__, group))
            if len(found) > 1:
                yield found

    def above(self, keys: Iterator[str], memory: int) -> Iterator[str]:
        """Yield the folders that `keys` are in, and that are also keys; see `folders`."""
        seen = set[int]()
        while chunk := list(islice(keys, _CHUNK)):
            yield from self._walk({key.rpartition("/")[0] for key in chunk}, seen, memory)

    def folders(self, folders: Iterator[str], memory: int) -> Iterator[str]:
        """Yield the folders, and those above them, that are also keys: folded, usually once.

        Checked folders are remembered in up to `memory` bytes; then all are forgotten.
        """
        seen = set[int]()
        while chunk := set(islice(folders, _CHUNK)):
            yield from self._walk(chunk, seen, memory)

    def _walk(self, folders: Iterable[str], seen: set[int], memory: int) -> Iterator[str]:
        max_hashes = max(1, memory // HASH_COST)
        for folder in folders:
            walked = fold_key(folder)
            while walked and (mark := hash(walked)) not in seen:
                if len(seen) >= max_hashes:
                    seen.clear()
                seen.add(mark)
                if mark in self._hashes:
                    yield walked
                walked = walked[: max(0, walked.rfind("/"))]


def find_duplicates(places: Sequence[int], key_of: Callable[[int], str]) -> Iterator[Sequence[int]]:
    """Yield the places, ascending, of each key that a group has more than once."""
    marks = array("q", (hash(key_of(place)) for place in places))
    order = array("I", sorted(range(len(places)), key=marks.__getitem__))
    for _, group in groupby(order, marks.__getitem__):
        same = array("I", group)
        if len(same) > 1:
            by_key = dict[str, list[int]]()
            for at in same:
                by_key.setdefault(key_of(places[at]), []).append(places[at])
            yield from (found for found in by_key.values() if len(found) > 1)


def find_collision(places: Sequence[int], key_of: Callable[[int], str]) -> int | None:
    """Return the first place whose key equals the first key only when both are folded."""
    first = key_of(places[0])
    folded = fold_key(first)
    for place in places[1:]:
        key = key_of(place)
        if key != first and fold_key(key) == folded:
            return place
    return None
