"""Check the whole index: order, overlaps, duplicates, limits.

`judging` checks single headers. `local` and `decode` check what needs the archive's data.
"""

from __future__ import annotations

from itertools import chain, compress, pairwise
from typing import TYPE_CHECKING

from s3unzip.finding import Finding
from s3unzip.zip.directory.columns import (
    DIRECTORY,
    FAILED,
    LONG_DIRECTORY,
    MEMBER,
    Folders,
    MemberColumns,
    Members,
)
from s3unzip.zip.directory.findings import Failures, Index, Warnings
from s3unzip.zip.directory.headers import Columns, Headers
from s3unzip.zip.directory.keys import (
    HASH_COST,
    FoldedKeys,
    find_collision,
    find_duplicates,
    fold_form,
    fold_key,
)
from s3unzip.zip.directory.names import cut_name
from s3unzip.zip.directory.places import resolve_places
from s3unzip.zip.errors import RejectedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from s3unzip.zip.directory.headers import CentralHeader, HeaderNote
    from s3unzip.zip.directory.locate import DirectoryLocation
    from s3unzip.zip.policy import Policy

_BATCH = 4096
_S3_SPECIAL = ("soap",)

# The use of a header's name: none, a member's key, a folder.
_UNNAMED, _KEY, _FOLDER = 0, 1, 2


class IndexBuilder:
    """Takes headers as they are read; `finish` makes the checks that need all of them.

    `key_of` returns the destination key of a member's path, because keys must be unique and short
    enough. `reserved` is a key that the run writes itself.
    """

    def __init__(
        self,
        location: DirectoryLocation,
        policy: Policy,
        key_of: Callable[[str], str],
        reserved: str | None = None,
    ) -> None:
        self._location, self._policy, self._key_of = location, policy, key_of
        self._reserved = None if reserved is None else fold_key(reserved)
        self._columns = MemberColumns()
        self._failures = Failures(self._columns)
        self._warnings = Warnings(policy.limits.kept_warnings)
        for finding in location.warnings:
            self._warnings.add(finding)
        self._named = bytearray()
        self._declared = 0
        self._names_size = 0
        self._directories: set[int] = set()
        self._max_directories = policy.limits.folder_memory // HASH_COST
        self._folded = FoldedKeys()

    def add(self, headers: Sequence[CentralHeader]) -> None:
        """Take the next headers of the directory.

        Raises:
            RejectedError: the declared sizes or the names exceed their limit.
        """
        if isinstance(headers, Headers):
            for run in headers.runs:
                self._add_run(run)
            return
        for start in range(0, len(headers), _BATCH):
            batch = headers[start : start + _BATCH]
            self._add_run(Columns._make(zip(*batch, strict=True)))

    def _add_run(self, run: Columns) -> None:
        base = len(self._columns.kind)
        self._columns.take(run)
        count = len(run.path)
        self._columns.kind += bytes((MEMBER,)) * count
        self._named += bytes((_KEY,)) * count
        paths: Sequence[str] = run.path
        if any(run.note):
            for at, note in enumerate(run.note):
                if note is not None:
                    self._take_note(base + at, run.header(at), note)
            is_key = map(_KEY.__eq__, self._named[base:])
            paths = tuple(compress(paths, is_key))
        self._check_budgets(base)
        if paths:
            self._take_keys(paths, base)
        self._names_size += self._columns.names_size(base)
        if self._names_size > self._policy.limits.names_size:
            limit = self._policy.limits.names_size
            message = f"{self._names_size} bytes of names so far, the limit is {limit}"
            raise RejectedError(Finding("names-too-large", message))

    def _check_budgets(self, base: int) -> None:
        self._declared += sum(self._columns.size[base:])
        if self._declared > self._policy.limits.total_size:
            limit = self._policy.limits.total_size
            message = f"{self._declared} bytes declared so far, the limit is {limit}"
            raise RejectedError(Finding("bomb-total", message))

    def _take_note(self, place: int, header: CentralHeader, note: HeaderNote) -> None:
        """Count the warnings of a note, and record the outcome of its header."""
        columns = self._columns
        for finding in note.warnings:
            self._warnings.add(finding)
        if note.finding is not None:
            columns.kind[place] = FAILED
            self._failures.add(header.index, note.finding.code, note.finding.message)
            if not note.is_named or note.is_directory:
                self._forget_name(place)
        elif note.is_directory:
            columns.kind[place] = DIRECTORY
            self._take_directory(place, header)

    def _take_directory(self, place: int, header: CentralHeader) -> None:
        mark = hash(header.path)
        if mark in self._directories:
            finding = Finding(
                "dup-directory", "listed before", header.offset, cut_name(header.path)
            )
            self._warnings.add(finding)
        elif len(self._directories) < self._max_directories:
            self._directories.add(mark)
        if _utf8_length(header.path) > self._policy.limits.key_bytes:
            self._forget_name(place)  # no key lies below it
            self._columns.kind[place] = LONG_DIRECTORY
        else:
            self._named[place] = _FOLDER

    def _forget_name(self, place: int) -> None:
        """Keep only the part of a name that messages show."""
        self._named[place] = _UNNAMED
        self._columns.cut_path(place)

    def _take_keys(self, paths: Sequence[str], base: int) -> None:
        """Check the keys from `base` on: their length, and collisions with other keys."""
        keys = list(map(self._key_of, paths))
        # A character is at most four bytes of UTF-8.
        worst = max(map(len, keys)) * (1 if all(map(str.isascii, keys)) else 4)
        if worst > self._policy.limits.key_bytes:
            keys = self._fail_long(keys, base)
        if self._reserved is not None:
            self._fail_reserved(keys, base, self._reserved)
        if keys:
            self._folded.take(keys)

    def _key_places(self, base: int = 0) -> Iterator[int]:
        """Yield the places of the members that have a key, failed ones among them."""
        named = self._named
        at = named.find(_KEY, base)
        while at >= 0:
            yield at
            at = named.find(_KEY, at + 1)

    def _fail_long(self, keys: list[str], base: int) -> list[str]:
        """Fail the members from `base` on whose keys are too long; return the other keys."""
        max_bytes, kept = self._policy.limits.key_bytes, list[str]()
        for place, key in zip(list(self._key_places(base)), keys, strict=True):
            length = _utf8_length(key)
            if length <= max_bytes:
                kept.append(key)
                continue
            self._forget_name(place)
            message = f"the key would have {length} bytes, the limit is {max_bytes}"
            self._fail_place(place, "key-too-long", message)
        return kept

    def _fail_reserved(self, keys: list[str], base: int, reserved: str) -> None:
        """Fail the members from `base` on that would take a key that the run writes itself."""
        for place, key in zip(self._key_places(base), keys, strict=True):
            folded = fold_key(key)
            if folded == reserved or folded.startswith(f"{reserved}/"):
                message = "the run writes this key itself, when all went well: its marker"
                self._fail_place(place, "name-reserved", message)

    def _fail_place(self, place: int, code: str, message: str) -> None:
        """Fail a member, unless it has failed already."""
        if self._columns.kind[place] == MEMBER:
            self._columns.kind[place] = FAILED
            self._failures.add(self._columns.index[place], code, message)

    def finish(self) -> Index:
        """Make the checks that need every header.

        Raises:
            RejectedError: members overlap, or two have one key.
        """
        self._resolve_repeated()
        self._warn_clashes()
        resolve_places(self._columns, self._location.start)
        self._failures.sort()
        members = Members(self._columns)
        kind = self._columns.kind
        return Index(
            members=members,
            failures=self._failures,
            first=min(self._columns.offset[:1], default=self._location.start),
            folders=Folders(self._columns),
            directories=kind.count(DIRECTORY) + kind.count(LONG_DIRECTORY),
            entries=len(kind),
            total_size=members.size,
            total_compressed=members.compressed_size,
            warnings=self._warnings,
        )

    def _keys(self, use: int) -> Iterator[str]:
        """Yield the keys of the headers whose names have this `use`."""
        found = self._named.count(use)
        if found == len(self._named):
            return map(self._key_of, self._columns.paths())
        if not found:
            return iter(())
        return map(self._key_of, compress(self._columns.paths(), map(use.__eq__, self._named)))

    def _key_at(self, place: int) -> str:
        return self._key_of(self._columns.path(place))

    def _resolve_repeated(self) -> None:
        """Separate duplicates from collisions among the keys whose folded hash is not unique."""
        keys = ((place, self._key_at(place)) for place in self._key_places())
        for places in self._folded.repeated(keys):
            for same in find_duplicates(places, self._key_at):
                self._resolve_duplicates(same)
            other = find_collision(places, self._key_at)
            if other is not None:
                self._warn_collision(places[0], other)

    def _resolve_duplicates(self, places: Sequence[int]) -> None:
        columns, key = self._columns, cut_name(self._key_at(places[0]))
        for earlier, place in pairwise(places):
            message = f"members {columns.index[earlier]} and {columns.index[place]} are {key!r}"
            if not self._policy.lenient:
                finding = Finding("duplicate-name", message, columns.offset[place], key)
                raise RejectedError(finding)
            self._fail_place(earlier, "duplicate-name", f"{message}: the last one is written")

    def _warn_collision(self, one: int, other: int) -> None:
        first, second = self._key_at(one), self._key_at(other)
        is_form = fold_form(first) == fold_form(second)
        code = "unicode-collision" if is_form else "case-collision"
        message = f"{cut_name(first)!r} and {cut_name(second)!r} are one name to some file systems"
        finding = Finding(code, message, self._columns.offset[other], cut_name(second))
        self._warnings.add(finding)

    def _warn_clashes(self) -> None:
        """Warn of keys that are also another key's folder, and of keys that S3 treats specially."""
        memory = self._policy.limits.folder_memory
        above = self._folded.above(self._keys(_KEY), memory)
        for clash in chain(above, self._folded.folders(self._keys(_FOLDER), memory)):
            message = "both a file and a folder: a download to a file system breaks"
            finding = Finding("file-dir-prefix-conflict", message, None, cut_name(clash))
            self._warnings.add(finding)
        for key in _S3_SPECIAL:
            if key in self._folded:
                message = "some S3 clients cannot address this key"
                self._warnings.add(Finding("name-s3-special", message, None, key))
        self._folded, self._directories = FoldedKeys(), set()


def _utf8_length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def finalize_index(
    headers: Iterable[CentralHeader],
    location: DirectoryLocation,
    policy: Policy,
    key_of: Callable[[str], str],
) -> Index:
    """Build an index in one call; `IndexBuilder` takes headers in pieces.

    Raises:
        RejectedError: the index as a whole is broken or has two meanings.
    """
    builder = IndexBuilder(location, policy, key_of)
    builder.add(list(headers))
    return builder.finish()
