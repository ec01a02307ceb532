"""Which members of a directory are extracted, and whether their keys can exist beside each other.

Keys are compared by hashes, so the memory for a key does not depend on its length. Keys of members
that are not selected are not judged.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, groupby, islice
from typing import NamedTuple

from s3unzip.finding import Finding, RejectedError
from s3unzip.zip.checks import Policy
from s3unzip.zip.members import FAILED, FOLDER, NAMELESS, PLACELESS, SELECTED, HeaderTable
from s3unzip.zip.names import cut_name, fold_form, fold_key, utf8_length
from s3unzip.zip.values import reject

HASH_COST = 100  # bytes of a hash in a set, with room for growing
_FOLDERS_AT_ONCE = 8192
_S3_SPECIAL = "soap"  # some S3 clients cannot address this key


class Selection(NamedTuple):
    """Which members are extracted, and their keys, which must be unique and short enough."""

    key_of: Callable[[str], str] = str  # destination key of a member's path
    reserved: str | None = None  # a key that the run writes itself
    selects: Callable[[str], bool] | None = None  # whether a path is selected; None: all are
    limit: int | None = None  # of the selected members, in the directory's order
    # The key of a folder that the archive lists, None if it is not made. Without this function the
    # destination has no folders.
    folder_key: Callable[[str], str | None] | None = None


class FoldedKeys:
    """The hashes of all folded keys, and which of them are not unique."""

    def __init__(self) -> None:
        self._hashes: set[int] = set()
        self._repeated: set[int] = set()

    def take(self, keys: Sequence[str]) -> None:
        """Record keys; a collision marks all of them, so that `repeated` compares them."""
        fold = str.lower if all(map(str.isascii, keys)) else fold_key
        hashes = list(map(hash, map(fold, keys)))
        previous = len(self._hashes)
        self._hashes.update(hashes)
        if len(self._hashes) - previous != len(hashes):
            self._repeated.update(hashes)

    def __contains__(self, key: str) -> bool:
        return hash(fold_key(key)) in self._hashes

    def repeated(self, keys: Iterable[tuple[int, str]]) -> Iterator[array[int]]:
        """Yield groups of keys with one folded hash, by their numbers in rising order.

        `keys` are the numbers, rising, and keys that were taken. Keys of a group may still differ.
        Sorting by hash is stable, so the numbers of a group rise, too.
        """
        if not self._repeated:
            return
        hashes = array("q")
        numbers = array("I")
        for number, key in keys:
            mark = hash(fold_key(key))
            if mark in self._repeated:
                hashes.append(mark)
                numbers.append(number)
        order = array("I", sorted(range(len(hashes)), key=hashes.__getitem__))
        for _, positions in groupby(order, hashes.__getitem__):
            equals = array("I", map(numbers.__getitem__, positions))
            if len(equals) > 1:
                yield equals

    def folders(self, folders: Iterator[str], memory: int) -> Iterator[int]:
        """Yield the hashes of folders, and of those above them, that are also keys: folded."""
        hashes = hash_folders(folders, memory, fold_key)
        return (mark for mark in hashes if mark in self._hashes)


def hash_folders(
    folders: Iterator[str], memory: int, fold: Callable[[str], str] = str
) -> Iterator[int]:
    """Yield the hashes of the folders, and of those above them, usually once each.

    Up to `memory` bytes remember them; then all are forgotten.
    """
    max_hashes = max(1, memory // HASH_COST)
    hashes = set[int]()
    while chunk := set(islice(folders, _FOLDERS_AT_ONCE)):
        for folder in chunk:
            above = fold(folder)
            while above and (mark := hash(above)) not in hashes:
                if len(hashes) >= max_hashes:
                    hashes.clear()
                hashes.add(mark)
                yield mark
                above = above[: max(0, above.rfind("/"))]


class KeyChecker:
    """Checks the keys of a table's members; fails those that cannot exist.

    Rules:

    * Call `check` after the headers of each piece of the directory were added, then `finish` once.
    * Both change the kinds and faults of the table's headers, and cut long names.
    """

    def __init__(self, table: HeaderTable, policy: Policy, selection: Selection) -> None:
        self._table = table
        self._limits = policy.limits
        self._is_lenient = policy.lenient
        self._selection = selection
        self._key_of = selection.key_of
        self._reserved = None
        if selection.reserved is not None:
            self._reserved = fold_key(selection.reserved)
        self._selected = 0
        self._names_size = 0
        self._directories: set[int] = set()
        self._folded = FoldedKeys()
        self.warnings: Counter[str] = Counter()

    def check(self, start: int) -> None:
        """Check the names of the headers from number `start` on, and the keys of their members."""
        table = self._table
        key_of = self._key_of
        max_bytes = self._limits.key_bytes
        is_selective = self._selection.selects is not None or self._selection.limit is not None
        keys: list[str] = []
        for number in range(start, len(table.kinds)):
            kind = table.kinds[number]
            if kind == FOLDER:
                self._take_directory(number)
                continue
            if is_selective and kind != PLACELESS and not self._selects(number):
                table.leave_out(number, max_bytes)
                continue
            if kind > FAILED:
                table.cut_path(number)
                continue
            key = key_of(table.path(number))
            # A character has at most four bytes: few keys must be encoded to be measured.
            if 4 * len(key) > max_bytes and (length := utf8_length(key)) > max_bytes:
                message = f"the key would have {length} bytes, the limit is {max_bytes}"
                table.fail_header(number, "key-too-long", message, NAMELESS)
                table.cut_path(number)
                continue
            if self._reserved is not None and self._is_reserved(key):
                message = "the run writes this key itself, when all went well: its marker"
                table.fail_header(number, "name-reserved", message)
            keys.append(key)
            if is_selective:
                self._selected += table.kinds[number] == SELECTED
        self._folded.take(keys)
        self._add_names(start)

    def _add_names(self, start: int) -> None:
        """Refuse an archive whose names need too much memory."""
        self._names_size += self._table.names_size(start)
        limit = self._limits.names_size
        if self._names_size > limit:
            message = f"{self._names_size} bytes of names so far, the limit is {limit}"
            reject("names-too-large", message)

    def _is_reserved(self, key: str) -> bool:
        folded = fold_key(key)
        return folded == self._reserved or folded.startswith(f"{self._reserved}/")

    def _selects(self, number: int) -> bool:
        """Return whether the options select a member, or one that failed."""
        limit = self._selection.limit
        if limit is not None and self._selected >= limit:
            return False
        selects = self._selection.selects
        return selects is None or selects(self._table.path(number))

    def _take_directory(self, number: int) -> None:
        """Count a directory that is listed twice; leave out one whose name is too long for keys."""
        table = self._table
        path = table.path(number)
        mark = hash(path)
        if mark in self._directories:
            self.warnings["dup-directory"] += 1
        elif len(self._directories) < self._limits.folder_memory // HASH_COST:
            self._directories.add(mark)
        if utf8_length(path) > self._limits.key_bytes:
            table.kinds[number] = PLACELESS  # no key lies below it
            table.cut_path(number)

    def finish(self) -> None:
        """Judge the keys that are equal, or equal to a folder; forget all keys.

        Raises:
            RejectedError: two members have one key, and the policy is not lenient.
        """
        self._resolve_repeated()
        clashes = self._find_clashes()
        self._folded = FoldedKeys()
        self._directories = set()
        if clashes and self._selection.folder_key is not None:
            self._judge_folders(clashes, self._selection.folder_key)

    def _resolve_repeated(self) -> None:
        """Separate duplicates from collisions among the keys whose folded hash is not unique."""
        path_of = self._table.path
        keyed = (
            (number, self._key_of(path_of(number)))
            for number in self._table.numbers(SELECTED, FAILED)
        )
        for numbers in self._folded.repeated(keyed):
            last: dict[str, int] = {}  # number of each key
            for number in numbers:
                key = self._key_of(path_of(number))
                if key in last:
                    self._resolve_duplicate(last[key], number, cut_name(key))
                last[key] = number
            self._warn_collision(list(last))

    def _resolve_duplicate(self, earlier: int, number: int, key: str) -> None:
        """Refuse the archive; under a lenient policy the later member counts."""
        message = f"members {earlier} and {number} are {key!r}"
        if not self._is_lenient:
            offset = self._table.offsets[number]
            raise RejectedError(Finding("duplicate-name", message, offset, key))
        self.warnings["duplicate-name"] += 1
        self._table.drop(earlier)

    def _warn_collision(self, keys: Sequence[str]) -> None:
        """Count one warning if another key is equal to the first one when both are folded."""
        first = keys[0]
        for key in keys[1:]:
            if fold_key(key) == fold_key(first):
                is_form = fold_form(key) == fold_form(first)
                code = "unicode-collision" if is_form else "case-collision"
                self.warnings[code] += 1
                return

    def _find_clashes(self) -> set[int]:
        """Warn of keys that are also another key's folder, and of keys that S3 treats specially.

        Returns:
            The hashes of the folded keys that are also folders.
        """
        above = (key.rpartition("/")[0] for key in self._keys(SELECTED, FAILED))
        folders = chain(above, map(self._key_of, self._listed_folders()))
        clashes = set(self._folded.folders(folders, self._limits.folder_memory))
        if clashes:
            self.warnings["file-dir-prefix-conflict"] += len(clashes)
        if _S3_SPECIAL in self._folded:
            self.warnings["name-s3-special"] += 1
        return clashes

    def _keys(self, *kinds: int) -> Iterator[str]:
        """Yield the keys of the members that are of one of `kinds`."""
        return map(self._key_of, self._table.paths(*kinds))

    def _listed_folders(self) -> Iterator[str]:
        """Yield the paths of the folders that the archive lists and the options select."""
        selects = self._selection.selects
        for path in self._table.paths(FOLDER):
            if selects is None or selects(f"{path}/"):
                yield path

    def _judge_folders(self, clashes: set[int], folder_key: Callable[[str], str | None]) -> None:
        """Judge members whose keys are also folders, where keys are paths.

        A member without content is the folder: some writers list folders so. One with content
        fails if members lie below it, because only one of them can exist: it fails each time.
        """
        table = self._table
        clashing: dict[int, int] = {}  # numbers by the hashes of their keys
        for number in table.numbers(SELECTED):
            key = self._key_of(table.path(number))
            if hash(fold_key(key)) in clashes:
                clashing[hash(key)] = number
        memory = self._limits.folder_memory
        above = (key.rpartition("/")[0] for key in self._keys(SELECTED))
        needed = set(clashing).intersection(hash_folders(above, memory))
        listed = filter(None, map(folder_key, self._listed_folders()))
        folders = needed.union(hash_folders(listed, memory))
        for mark, number in clashing.items():
            if not table.sizes[number] and mark in folders:
                table.kinds[number] = FOLDER
            elif mark in needed:
                message = "other members lie below its name, and it has content"
                table.fail_header(number, "name-is-folder", message)
