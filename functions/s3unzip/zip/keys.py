"""Select members of a directory, and check whether their keys can exist beside each other.

Keys are compared by hashes, so the memory for a key does not depend on its length. Keys of members
that are not selected are not checked.
"""

from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, groupby, islice
from typing import NamedTuple

from s3unzip.finding import Finding, RejectedError
from s3unzip.zip.checks import Policy
from s3unzip.zip.members import FAILED, FOLDER, NAMELESS, PLACELESS, SELECTED, HeaderTable
from s3unzip.zip.names import cut_name, fold_form, fold_key, utf8_length
from s3unzip.zip.values import reject

_HASH_BYTES = 100  # memory that a hash takes in a set, including room to grow
_FOLDERS_AT_ONCE = 8192  # equal folders among these are hashed only once


class Selection(NamedTuple):
    """The options that decide which members are extracted, and under which keys."""

    key_of: Callable[[str], str] = str  # destination key of a member's path
    reserved: str | None = None  # a key that the run writes itself
    selects: Callable[[str], bool] | None = None  # whether a path is selected; None: all are
    limit: int | None = None  # select at most this many members: the first ones in the directory
    # Returns the key of a folder that the archive lists, or None if the folder is not made. The
    # function itself is None if the destination has no folders.
    folder_key: Callable[[str], str | None] | None = None


def _hash_folders(
    folders: Iterator[str], memory: int, fold: Callable[[str], str] = str
) -> Iterator[int]:
    """Yield the hashes of the folders and of all their parents.

    Usually each hash is yielded once. When the yielded hashes take `memory` bytes, all of them are
    forgotten and may be yielded again.
    """
    max_hashes = max(1, memory // _HASH_BYTES)
    hashes = set[int]()
    while chunk := set(islice(folders, _FOLDERS_AT_ONCE)):
        for folder in chunk:
            path = fold(folder)  # then each of its parents, up to one that was yielded before
            while path and (key_hash := hash(path)) not in hashes:
                if len(hashes) >= max_hashes:
                    hashes.clear()
                hashes.add(key_hash)
                yield key_hash
                path = path[: max(0, path.rfind("/"))]


class KeyChecker:
    """Checks the keys of a table's members; fails members whose keys cannot exist.

    Rules:

    * Call `check` after the headers of each piece of the directory were added, then `finish` once.
    * Both methods change the kinds and faults of the table's headers, and cut long names.
    """

    def __init__(self, table: HeaderTable, policy: Policy, selection: Selection) -> None:
        self._table = table
        self._policy = policy
        self._selection = selection
        self._reserved = fold_key(selection.reserved or "")
        self._selected_count = 0
        self._names_size = 0
        self._directories: set[int] = set()  # hashes of their paths
        # The hashes of all folded keys. Only SELECTED and FAILED headers have keys.
        self._hashes: array[int] = array("q")
        self.warnings: Counter[str] = Counter()

    def check(self, start: int) -> None:
        """Check the names of header `start` and all later ones, and the keys of their members."""
        table = self._table
        key_of = self._selection.key_of
        max_bytes = self._policy.limits.key_bytes
        is_selective = self._selection.selects is not None or self._selection.limit is not None
        keys: list[str] = []
        for number in range(start, len(table.kinds)):
            kind = table.kinds[number]
            if kind == FOLDER:
                self._check_directory(number)
                continue
            # The options select members; a folder that is not made is not one of them.
            if is_selective and kind != PLACELESS and not self._selects(number):
                table.leave_out(number, max_bytes)
                continue
            if kind > FAILED:  # only SELECTED and FAILED, the first kinds, have a key
                table.cut_path(number)
                continue
            key = key_of(table.path(number))
            # UTF-8 has at most four bytes per character, so short keys need not be measured.
            if 4 * len(key) > max_bytes and (length := utf8_length(key)) > max_bytes:
                table.fail_header(
                    number,
                    "key-too-long",
                    f"the key would have {length} bytes, the limit is {max_bytes}",
                    NAMELESS,
                )
                table.cut_path(number)
                continue
            # The trailing slash lets a prefix be compared by whole segments.
            if self._reserved and f"{fold_key(key)}/".startswith(f"{self._reserved}/"):
                table.fail_header(
                    number, "name-reserved", "the run writes its completion marker under this key"
                )
            keys.append(key)
            if is_selective:  # a failed member does not count towards the limit
                self._selected_count += table.kinds[number] == SELECTED
        # Nearly always all keys are ASCII, for which `str.lower` does the same and is faster.
        fold = str.lower if all(map(str.isascii, keys)) else fold_key
        self._hashes.extend(map(hash, map(fold, keys)))
        self._names_size += table.names_size(start)
        limit = self._policy.limits.names_size
        if self._names_size > limit:
            reject(
                "names-too-large", f"{self._names_size} bytes of names so far, the limit is {limit}"
            )

    def _selects(self, number: int) -> bool:
        limit = self._selection.limit
        if limit is not None and self._selected_count >= limit:
            return False
        selects = self._selection.selects
        return selects is None or selects(self._table.path(number))

    def _check_directory(self, number: int) -> None:
        """Warn about a directory that is listed twice; do not make one whose name is too long."""
        table = self._table
        path = table.path(number)
        if hash(path) in self._directories:
            self.warnings["dup-directory"] += 1
        elif len(self._directories) < self._policy.limits.folder_memory // _HASH_BYTES:
            self._directories.add(hash(path))
        if utf8_length(path) > self._policy.limits.key_bytes:
            table.kinds[number] = PLACELESS  # each key below it would be longer than its path
            table.cut_path(number)

    def finish(self) -> None:
        """Judge keys that are equal to each other or to a folder; free the memory for all keys.

        Raises:
            RejectedError: two members have one key, and the policy is not lenient.
        """
        hashes = set(self._hashes)
        if len(hashes) < len(self._hashes):  # at least two keys have the same hash
            for numbers in self._group_repeated():
                self._judge_group(numbers)
        clashes = self._find_clashes(hashes)
        del hashes, self._hashes, self._directories
        if clashes and self._selection.folder_key is not None:
            self._judge_folders(clashes, self._selection.folder_key)

    def _group_repeated(self) -> Iterator[Sequence[int]]:
        """Yield each group of members whose folded keys share a hash: their numbers, rising."""
        numbers = array("I", self._table.numbers(SELECTED, FAILED))  # in the order of `_hashes`
        # The sort is stable: the numbers of equal hashes keep their order.
        order = array("I", sorted(range(len(numbers)), key=self._hashes.__getitem__))
        for _, positions in groupby(order, self._hashes.__getitem__):
            member_numbers = array("I", map(numbers.__getitem__, positions))
            if len(member_numbers) > 1:
                yield member_numbers

    def _judge_group(self, numbers: Sequence[int]) -> None:
        """Judge members whose folded keys have the same hash.

        If two keys are equal, the archive is refused; under a lenient policy the later member is
        kept. If keys differ from the first key only in case or Unicode form, one warning is
        counted.
        """
        last_numbers: dict[str, int] = {}  # the last member with each key
        for number in numbers:
            key = self._selection.key_of(self._table.path(number))
            if key in last_numbers:
                self._resolve_duplicate(last_numbers[key], number, cut_name(key))
            last_numbers[key] = number
        first, *later = last_numbers
        for key in later:
            if fold_key(key) == fold_key(first):
                is_same_case = fold_form(key) == fold_form(first)
                code = "unicode-collision" if is_same_case else "case-collision"
                self.warnings[code] += 1
                break

    def _resolve_duplicate(self, earlier: int, number: int, key: str) -> None:
        """Refuse the archive because of two members with one key, or drop the earlier member."""
        if not self._policy.lenient:
            message = f"members {earlier} and {number} are {key!r}"
            raise RejectedError(
                Finding("duplicate-name", message, self._table.offsets[number], key)
            )
        self.warnings["duplicate-name"] += 1
        self._table.drop(earlier)

    def _find_clashes(self, hashes: set[int]) -> set[int]:
        """Return those hashes of folded keys that are also hashes of folders of other keys.

        Count warnings about these keys, and about a key that S3 treats specially.
        """
        parents = (key.rpartition("/")[0] for key in self._keys(SELECTED, FAILED))
        folders = chain(parents, map(self._selection.key_of, self._selected_folders()))
        folder_hashes = _hash_folders(folders, self._policy.limits.folder_memory, fold_key)
        clashes = {key_hash for key_hash in folder_hashes if key_hash in hashes}
        if clashes:
            self.warnings["file-dir-prefix-conflict"] += len(clashes)
        if hash("soap") in hashes:  # some S3 clients cannot address this key
            self.warnings["name-s3-special"] += 1
        return clashes

    def _keys(self, *kinds: int) -> Iterator[str]:
        return map(self._selection.key_of, self._table.paths(*kinds))

    def _selected_folders(self) -> Iterator[str]:
        selects = self._selection.selects
        for path in self._table.paths(FOLDER):
            if selects is None or selects(f"{path}/"):
                yield path

    def _judge_folders(self, clashes: set[int], folder_key: Callable[[str], str | None]) -> None:
        """Judge members whose keys are also folders, at a destination whose keys are paths.

        A member without content becomes the folder: some writers list folders as empty files. One
        with content fails if other members lie below it, because the destination cannot have both.
        It fails in each run, so that the result does not depend on which is written first.
        """
        table = self._table
        # `clashes` has hashes of folded keys. From here on keys are compared without folding.
        clashing: dict[int, int] = {}  # numbers by the hashes of their keys
        for number in table.numbers(SELECTED):
            key = self._selection.key_of(table.path(number))
            if hash(fold_key(key)) in clashes:
                clashing[hash(key)] = number
        # First the folders that other members lie below, then also those that the archive lists.
        memory = self._policy.limits.folder_memory
        parents = (key.rpartition("/")[0] for key in self._keys(SELECTED))
        used_folders = set(clashing).intersection(_hash_folders(parents, memory))
        listed_folders = filter(None, map(folder_key, self._selected_folders()))
        folders = used_folders.union(_hash_folders(listed_folders, memory))
        for key_hash, number in clashing.items():
            if not table.sizes[number] and key_hash in folders:
                table.kinds[number] = FOLDER
            elif key_hash in used_folders:
                table.fail_header(
                    number, "name-is-folder", "other members lie below its name, and it has content"
                )
