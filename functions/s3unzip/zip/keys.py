"""Select members of a directory, and check whether their keys can coexist.

Keys are compared by their hashes, so the memory for a key does not depend on its length. The keys
of members that are not selected are not checked.
"""

from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, groupby, islice
from typing import NamedTuple

from s3unzip.zip.checks import Policy
from s3unzip.zip.members import FAILED, FOLDER, KEYLESS, SELECTED, SKIPPED_FOLDER, HeaderTable
from s3unzip.zip.names import cut_name, fold_form, fold_key, utf8_length
from s3unzip.zip.values import reject

_HASH_BYTES = 100  # memory for a hash in a set, including room for growth
_FOLDERS_AT_ONCE = 8192  # size of a group of folders; within a group, equal folders are hashed once


class Selection(NamedTuple):
    """The options that determine which members are extracted, and the keys of these members."""

    key_of: Callable[[str], str] = str  # returns the destination key for the path of a member
    reserved: str | None = None  # a key to which the run itself writes
    # Returns whether the archive itself has this key; False if the archive is in another store.
    is_archive: Callable[[str], bool] = frozenset[str]().__contains__
    selects: Callable[[str], bool] | None = None  # whether a path is selected; None selects all
    limit: int | None = None  # the maximum number of members to select, in directory order
    # Returns the key for a folder that the archive lists, or None if the folder is not created. The
    # attribute itself is None if the destination has no folders.
    folder_key: Callable[[str], str | None] | None = None


def _hash_folders(
    folders: Iterator[str], memory: int, fold: Callable[[str], str] = str
) -> Iterator[int]:
    """Yield the hashes of `folders` and of their parents; `fold` folds each path before hashing.

    The default `str` does not change a path. `folders` may repeat a folder for each of its members.
    Each hash is usually yielded only once. When the yielded hashes occupy `memory` bytes, the
    function clears the set of these hashes, and may then yield a hash again.
    """
    max_hashes = max(1, memory // _HASH_BYTES)
    hashes = set[int]()
    while chunk := set(islice(folders, _FOLDERS_AT_ONCE)):
        for folder in chunk:
            path = fold(folder)
            # Yield the path and its parents. If a path was yielded before, its parents were, too.
            while path and (key_hash := hash(path)) not in hashes:
                if len(hashes) >= max_hashes:
                    hashes.clear()
                hashes.add(key_hash)
                yield key_hash
                path = path.rpartition("/")[0]


class KeyChecker:
    """Checks the keys of the members in a table; fails members whose keys cannot exist.

    Rules:

    * Call `check` after adding the headers of each piece of the directory, then call `finish` once.
    * `check` and `finish` change the kinds and faults of the headers in the table. `check` also
      shortens names that do not become keys, to save memory.
    """

    def __init__(self, table: HeaderTable, policy: Policy, selection: Selection) -> None:
        self._table = table
        self._policy = policy
        self._selection = selection
        # A folded key: no member may have this key or a key below it. "" if no key is reserved.
        self._reserved = fold_key(selection.reserved or "")
        self._selected_count = 0
        self._names_size = 0  # total size in bytes of the names so far
        self._directories: set[int] = set()  # hashes of the paths of directories
        # The hashes of all folded keys. Only SELECTED and FAILED headers have keys.
        self._hashes: array[int] = array("q")
        self.warnings: Counter[str] = Counter()

    def check(self, start: int) -> None:
        """Check the names and the keys of header `start` and of all later headers."""
        table = self._table
        key_of = self._selection.key_of
        is_archive = self._selection.is_archive
        max_bytes = self._policy.limits.key_bytes
        short_length = max_bytes // 4  # a character has at most four bytes in UTF-8
        is_selective = self._selection.selects is not None or self._selection.limit is not None
        keys: list[str] = []
        for number, kind in enumerate(table.kinds[start:], start):
            if kind == FOLDER:
                self._check_directory(number)
            elif is_selective and kind != SKIPPED_FOLDER and not self._selects(number):
                table.leave_out(number, max_bytes)
            elif kind in (KEYLESS, SKIPPED_FOLDER):  # headers without a key
                table.shorten_name(number)
            else:
                key = key_of(table.path(number))
                # Short keys need not be measured.
                if len(key) > short_length and utf8_length(key) > max_bytes:
                    self._fail_long_key(number, key)
                    continue
                # A member with a reserved name fails. Its key is still compared with other keys.
                # The trailing slash ensures that a prefix is compared by whole segments.
                if self._reserved and f"{fold_key(key)}/".startswith(f"{self._reserved}/"):
                    table.fail_header(number, "name-reserved", "the completion marker has this key")
                if is_archive(key):
                    table.fail_header(number, "name-reserved", "the archive itself has this key")
                keys.append(key)
                # A member that has just failed does not count towards the limit of the selection.
                if is_selective and table.kinds[number] == SELECTED:
                    self._selected_count += 1
        # Nearly all keys are ASCII. For these, `str.lower` is equivalent to `fold_key`, and faster.
        fold = str.lower if all(map(str.isascii, keys)) else fold_key
        self._hashes.extend(map(hash, map(fold, keys)))
        self._names_size += table.names_size(start)
        limit = self._policy.limits.names_size
        if self._names_size > limit:
            reject(
                "names-too-large", f"{self._names_size} bytes of names so far; the limit is {limit}"
            )

    def _fail_long_key(self, number: int, key: str) -> None:
        self._table.fail_header(
            number,
            "key-too-long",
            f"the key would have {utf8_length(key)} bytes; the limit is "
            f"{self._policy.limits.key_bytes}",
            KEYLESS,
        )
        self._table.shorten_name(number)

    def _selects(self, number: int) -> bool:
        limit = self._selection.limit
        if limit is not None and self._selected_count >= limit:
            return False
        selects = self._selection.selects
        return selects is None or selects(self._table.path(number))

    def _check_directory(self, number: int) -> None:
        """Warn about a directory that is listed twice; skip a directory whose name is too long."""
        table = self._table
        path = table.path(number)
        if hash(path) in self._directories:
            self.warnings["dup-directory"] += 1
        # When the memory is used up, directories are no longer recorded (see `Limits`).
        elif len(self._directories) < self._policy.limits.folder_memory // _HASH_BYTES:
            self._directories.add(hash(path))
        if utf8_length(path) > self._policy.limits.key_bytes:
            table.kinds[number] = SKIPPED_FOLDER  # all keys in the folder are also too long
            table.shorten_name(number)  # saves memory

    def finish(self) -> None:
        """Check for keys that are equal to each other or to a folder; free the memory for all keys.

        Raises:
            RejectedError: two members have the same key, and the policy is not lenient.
        """
        hashes = set(self._hashes)
        if len(hashes) < len(self._hashes):  # at least two keys have the same hash
            for numbers in self._group_repeated():
                self._compare_keys(numbers)
        if hash("soap") in hashes:  # some S3 clients cannot address the key "soap"
            self.warnings["name-s3-special"] += 1
        clashes = self._find_clashes(hashes)
        self.warnings["file-dir-prefix-conflict"] += len(clashes)
        del hashes, self._hashes, self._directories
        # In a destination without folders, a key may be equal to the folder of another key.
        if clashes and self._selection.folder_key is not None:
            self._resolve_clashes(clashes, self._selection.folder_key)

    def _group_repeated(self) -> Iterator[Sequence[int]]:
        """Yield the numbers, in ascending order, of members whose folded keys have equal hashes."""
        # The key of member `numbers[i]` has the hash `_hashes[i]`.
        numbers = array("I", self._table.numbers(SELECTED, FAILED))
        # The sort is stable, so members with equal hashes stay in order.
        by_hash = array("I", sorted(range(len(numbers)), key=self._hashes.__getitem__))
        for _, positions in groupby(by_hash, self._hashes.__getitem__):
            member_numbers = array("I", map(numbers.__getitem__, positions))
            if len(member_numbers) > 1:
                yield member_numbers

    def _compare_keys(self, numbers: Sequence[int]) -> None:
        """Compare the keys of members whose folded keys have the same hash.

        If two keys are equal, the archive is refused; under a lenient policy, the earlier member is
        dropped instead. If keys differ only in case or Unicode form, at most one warning of each
        kind is counted.
        """
        last_numbers: dict[str, int] = {}  # number of the last member with each key
        for number in numbers:
            key = self._selection.key_of(self._table.path(number))
            if key in last_numbers:
                self._resolve_duplicate(last_numbers[key], number, cut_name(key))
            last_numbers[key] = number
        # The folded keys have the same hash. If a folded key differs from the first folded key, the
        # hashes are equal only by chance, so the key is left out.
        folded_key = fold_key(next(iter(last_numbers)))
        keys = [key for key in last_numbers if fold_key(key) == folded_key]
        count_of_forms = len({fold_form(key) for key in keys})
        # A comparison that is True adds 1.
        self.warnings["unicode-collision"] += count_of_forms < len(keys)
        self.warnings["case-collision"] += count_of_forms > 1

    def _resolve_duplicate(self, earlier: int, number: int, shown_key: str) -> None:
        """Refuse an archive with two members that have the same key, or drop the earlier member."""
        if not self._policy.lenient:
            reject(
                "duplicate-name",
                f"members {earlier} and {number} are {shown_key!r}",
                self._table.offsets[number],
                shown_key,
            )
        self.warnings["duplicate-name"] += 1
        self._table.drop(earlier)

    def _find_clashes(self, hashes: set[int]) -> set[int]:
        """Return the hashes in `hashes` that are also hashes of folders.

        `hashes` contains the hashes of all folded keys. The keys of failed members are included, as
        in `_group_repeated`.
        """
        folders = chain(
            self._parents(SELECTED, FAILED),
            map(self._selection.key_of, self._selected_folders()),
        )
        return hashes.intersection(
            _hash_folders(folders, self._policy.limits.folder_memory, fold_key)
        )

    def _parents(self, *kinds: int) -> Iterator[str]:
        return (
            key.rpartition("/")[0] for key in map(self._selection.key_of, self._table.paths(*kinds))
        )

    def _selected_folders(self) -> Iterator[str]:
        selects = self._selection.selects
        for path in self._table.paths(FOLDER):
            if selects is None or selects(f"{path}/"):
                yield path

    def _resolve_clashes(self, clashes: set[int], folder_key: Callable[[str], str | None]) -> None:
        """Resolve clashes: a member whose key is also a folder becomes this folder, or fails.

        This applies to destinations in which a key is the path of a file, such as the local disk. A
        member without content becomes the folder, because some writers list folders as empty files.
        A member with content fails if there are other members below its key, because a file and a
        folder cannot have the same path. The member fails in every run, so that the result does not
        depend on the order in which members are written.

        Args:
            clashes: the result of `_find_clashes`.
            folder_key: see `Selection`.
        """
        table = self._table
        # `clashes` contains hashes of folded keys. From here on, keys are compared without folding,
        # because only equal keys clash in every file system.
        numbers_by_key_hash: dict[int, int] = {}  # number of a member, by the hash of its key
        for number in table.numbers(SELECTED):
            key = self._selection.key_of(table.path(number))
            if hash(fold_key(key)) in clashes:
                numbers_by_key_hash[hash(key)] = number
        # First find the folders that contain other members, then add the listed folders.
        memory = self._policy.limits.folder_memory
        parent_hashes = _hash_folders(self._parents(SELECTED), memory)
        used_folders = set(numbers_by_key_hash).intersection(parent_hashes)
        listed_folders = filter(None, map(folder_key, self._selected_folders()))
        folders = used_folders.union(_hash_folders(listed_folders, memory))
        for key_hash, number in numbers_by_key_hash.items():
            if not table.sizes[number] and key_hash in folders:
                table.kinds[number] = FOLDER
            # A listed folder without members causes no failure: only the file is written.
            elif key_hash in used_folders:
                table.fail_header(
                    number, "name-is-folder", "its name is also the name of a folder with members"
                )
