"""Which keys an archive has, as file systems compare them: by hash, never by text.

The memory of this is a number of bytes a key, however long the keys are.
"""

from __future__ import annotations

import unicodedata
from array import array
from itertools import groupby, islice
from typing import TYPE_CHECKING

from s3unzip.zipformat.directory.names import has_long_marks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

_CHUNK = 8192
HASH_COST = 100  # bytes of a hash in a set, with room for growing


def fold_key(key: str) -> str:
    """Return what file systems that ignore case or Unicode form make of a key.

    Keys with more combining marks in a row than any language has are not
    normalised, for that takes the square of their number.
    """
    if key.isascii():
        return key.lower()
    if has_long_marks(key):
        return key.casefold()
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", key).casefold())


def fold_form(key: str) -> str:
    """Return what file systems that ignore only Unicode form make of a key."""
    return key if has_long_marks(key) else unicodedata.normalize("NFC", key)


class FoldedKeys:
    """The hashes of all keys, folded, and which of them came more than once."""

    def __init__(self) -> None:
        self._hashes: set[int] = set()
        self._repeated: set[int] = set()

    def take(self, keys: Sequence[str]) -> None:
        """Note keys; a collision marks all of them, for `repeated` to look at."""
        folds = str.lower if all(map(str.isascii, keys)) else fold_key
        hashes = list(map(hash, map(folds, keys)))
        before = len(self._hashes)
        self._hashes.update(hashes)
        if len(self._hashes) - before != len(hashes):
            self._repeated.update(hashes)

    def __contains__(self, key: str) -> bool:
        return hash(fold_key(key)) in self._hashes

    def repeated(self, keys: Iterable[tuple[int, str]]) -> Iterator[list[int]]:
        """Yield the places of each group of keys that may be one key when folded.

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
        order = sorted(range(len(hashes)), key=hashes.__getitem__)
        for _, group in groupby(order, hashes.__getitem__):
            found = [places[at] for at in group]
            if len(found) > 1:
                yield found

    def folders(self, folders: Iterable[str], memory: int) -> Iterator[str]:
        """Yield the folders, and those above them, that are also keys: folded, mostly once.

        Folders that were looked at are remembered in `memory` bytes, then
        forgotten all together.
        """
        seen, most = set[int](), max(1, memory // HASH_COST)
        rest = iter(folders)
        while chunk := set(islice(rest, _CHUNK)):
            for folder in chunk:
                walked = fold_key(folder)
                while walked and (mark := hash(walked)) not in seen:
                    if len(seen) >= most:
                        seen.clear()
                    seen.add(mark)
                    if mark in self._hashes:
                        yield walked
                    walked = walked[: max(0, walked.rfind("/"))]


def split_group(
    places: Sequence[int], key_of: Callable[[int], str]
) -> tuple[list[list[int]], tuple[int, int] | None]:
    """Split a group of `FoldedKeys.repeated` by what its keys really are.

    Returns the places of each key that is there more than once, in order, and
    two places whose keys differ but are one when folded, if there are such.
    """
    marks = array("q", (hash(key_of(place)) for place in places))
    order = sorted(range(len(places)), key=marks.__getitem__)
    duplicates: list[list[int]] = []
    firsts: list[int] = []
    for _, group in groupby(order, marks.__getitem__):
        by_key = dict[str, list[int]]()
        for at in group:
            by_key.setdefault(key_of(places[at]), []).append(places[at])
        firsts += (found[0] for found in by_key.values())
        duplicates += (found for found in by_key.values() if len(found) > 1)
    firsts.sort()
    folded = fold_key(key_of(firsts[0]))
    for other in firsts[1:]:
        if fold_key(key_of(other)) == folded:
            return duplicates, (firsts[0], other)
    return duplicates, None
