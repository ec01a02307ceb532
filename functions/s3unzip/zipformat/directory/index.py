"""Settle the whole index: order, overlaps, duplicates, budgets.

What is judged header by header is in `headers`; what needs the archive's
data, in `local` and `decode`.
"""

from __future__ import annotations

import unicodedata
from array import array
from dataclasses import dataclass, field
from itertools import compress, islice
from operator import gt
from typing import TYPE_CHECKING, NamedTuple

from s3unzip.errors import Finding, RejectedError
from s3unzip.zipformat.directory.columns import DIRECTORY, FAILED, MEMBER, MemberColumns, Members
from s3unzip.zipformat.directory.headers import Columns, Headers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from s3unzip.zipformat.directory.headers import CentralHeader, HeaderNote
    from s3unzip.zipformat.directory.locate import DirectoryLocation
    from s3unzip.zipformat.policy import Policy

_BATCH = 4096
# Folders that are compared with file keys, for the warning about one name being both.
_MOST_FOLDERS = 500_000
_S3_SPECIAL = ("soap",)


class Failure(NamedTuple):
    """A member that the index alone forbids to extract."""

    index: int  # type: ignore[assignment]  # a field of this name hides tuple.index, as meant
    path: str
    raw_name: bytes | None
    offset: int
    compressed_size: int
    size: int
    finding: Finding


@dataclass(slots=True)
class Warnings:
    """Warnings, all counted by code, the first `most` kept."""

    most: int
    kept: list[Finding] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)

    def add(self, finding: Finding) -> None:
        """Count a warning, and keep it if there is room."""
        self.counts[finding.code] = self.counts.get(finding.code, 0) + 1
        if len(self.kept) < self.most:
            self.kept.append(finding)


@dataclass(frozen=True, slots=True)
class Index:
    """The settled index of one archive; sizes in bytes.

    `members` are those to extract, by offset; `failures` those that cannot be,
    in directory order. `entries` counts every header, `directories` among them.
    `total_size` and `total_compressed` are of `members`.
    """

    members: Members
    failures: list[Failure]
    directories: int
    entries: int
    total_size: int
    total_compressed: int
    warnings: Warnings


class IndexBuilder:
    """Takes headers as they are read; `finish` makes the checks that need all of them.

    `key_of` gives the destination key of a member's path: uniqueness and length
    are judged on keys.
    """

    def __init__(
        self, location: DirectoryLocation, policy: Policy, key_of: Callable[[str], str]
    ) -> None:
        self._location, self._policy, self._key_of = location, policy, key_of
        self._columns = MemberColumns()
        self._failures: list[Failure] = []
        self._warnings = Warnings(policy.limits.kept_warnings)
        for finding in location.warnings:
            self._warnings.add(finding)
        self._named = bytearray()
        self._declared = 0
        self._directories: set[str] = set()
        self._folded: set[int] = set()
        self._suspects: set[int] = set()
        self._folders: set[str] = set()

    def add(self, headers: Sequence[CentralHeader]) -> None:
        """Take the next headers of the directory.

        Raises:
            RejectedError: the declared sizes pass the limit.
        """
        if isinstance(headers, Headers):
            for run in headers.runs:
                self._add_run(run)
            return
        for start in range(0, len(headers), _BATCH):
            batch = headers[start : start + _BATCH]
            self._add_run(Columns._make(zip(*batch, strict=True)))

    def _add_run(self, run: Columns) -> None:
        self._columns.take(run)
        paths = run.path
        kinds, named = bytearray(b"\1") * len(paths), bytearray(b"\1") * len(paths)
        if any(run.note):
            for place, note in enumerate(run.note):
                if note is not None:
                    kinds[place], named[place] = self._take_note(run.header(place), note)
            paths = tuple(compress(paths, named))
        base = len(self._columns.kind)
        self._columns.kind += kinds
        self._named += named
        self._declared += sum(self._columns.size[base:])
        if self._declared > self._policy.limits.total_size:
            limit = self._policy.limits.total_size
            message = f"{self._declared} bytes declared so far, the limit is {limit}"
            raise RejectedError(Finding("bomb-total", message))
        if paths:
            self._take_keys(paths, base)

    def _take_note(self, header: CentralHeader, note: HeaderNote) -> tuple[int, int]:
        """Count what a note says; return the header's kind, and whether it has a key."""
        for finding in note.warnings:
            self._warnings.add(finding)
        if note.finding is not None:
            self._fail(header, note.finding)
            return FAILED, int(note.is_named and not note.is_directory)
        if not note.is_directory:
            return MEMBER, 1
        if header.path in self._directories:
            self._warnings.add(
                Finding("dup-directory", "listed before", header.offset, header.path)
            )
        elif len(self._directories) < _MOST_FOLDERS:
            self._directories.add(header.path)
            self._folders.add(self._key_of(header.path))
        return DIRECTORY, 0

    def _fail(self, header: CentralHeader, finding: Finding) -> None:
        self._failures.append(
            Failure(
                header.index, header.path, header.raw_name, header.offset,
                header.compressed_size, header.size, finding,
            )
        )  # fmt: skip

    def _take_keys(self, paths: Sequence[str], base: int) -> None:
        """Note every key's folded hash, and which hashes came twice."""
        keys = list(map(self._key_of, paths))
        is_ascii = all(map(str.isascii, keys))
        hashes = list(map(hash, map(str.lower if is_ascii else fold_key, keys)))
        if max(map(len, keys)) * (1 if is_ascii else 4) > self._policy.limits.key_bytes:
            self._check_lengths(base)
        before = len(self._folded)
        self._folded.update(hashes)
        if len(self._folded) - before != len(hashes):
            self._suspects.update(hashes)
        folders = {key.rpartition("/")[0] for key in keys}
        if len(self._folders) < _MOST_FOLDERS:
            self._folders |= folders

    def _check_lengths(self, base: int) -> None:
        """Fail the members from `base` on whose keys are too long."""
        columns, most = self._columns, self._policy.limits.key_bytes
        for place in range(base, len(columns.kind)):
            if columns.kind[place] != MEMBER:
                continue
            length = len(self._key_of(columns.path[place]).encode("utf-8", "surrogatepass"))
            if length > most:
                message = f"the key would have {length} bytes, the limit is {most}"
                self._fail_place(place, "key-too-long", message)

    def _fail_place(self, place: int, code: str, message: str) -> None:
        columns = self._columns
        path, raw, offset = columns.path[place], columns.raw_name[place], columns.offset[place]
        columns.kind[place] = FAILED
        self._failures.append(
            Failure(
                columns.index[place], path, raw, offset,
                columns.compressed_size[place], columns.size[place],
                Finding(code, message, offset, path[:200]),
            )
        )  # fmt: skip

    def finish(self) -> Index:
        """Make the checks that need every header.

        Raises:
            RejectedError: members overlap, or two have one key.
        """
        if self._suspects:
            self._settle_suspects()
        self._warn_clashes()
        self._settle_places()
        members = Members(self._columns)
        plain = not self._failures and len(members) == len(self._columns.kind)
        self._failures.sort(key=lambda failure: failure.index)
        sizes, compressed = self._columns.size, self._columns.compressed_size
        kind = self._columns.kind
        return Index(
            members=members,
            failures=self._failures,
            directories=kind.count(DIRECTORY),
            entries=len(kind),
            total_size=sum(sizes) if plain else _sum_members(sizes, kind),
            total_compressed=sum(compressed) if plain else _sum_members(compressed, kind),
            warnings=self._warnings,
        )

    def _settle_suspects(self) -> None:
        """Tell duplicates from mere collisions among the keys whose folded hash came twice."""
        columns, groups = self._columns, dict[str, list[int]]()
        for place, path in enumerate(columns.path):
            if self._named[place]:
                folded = fold_key(self._key_of(path))
                if hash(folded) in self._suspects:
                    groups.setdefault(folded, []).append(place)
        for places in groups.values():
            if len(places) > 1:
                self._settle_group(places)

    def _settle_group(self, places: list[int]) -> None:
        columns, by_key = self._columns, dict[str, int]()
        for place in places:
            key = self._key_of(columns.path[place])
            earlier = by_key.get(key)
            by_key[key] = place
            if earlier is None:
                continue
            message = f"members {columns.index[earlier]} and {columns.index[place]} are {key!r}"
            if not self._policy.lenient:
                finding = Finding("duplicate-name", message, columns.offset[place], key[:200])
                raise RejectedError(finding)
            if columns.kind[earlier] == MEMBER:
                self._fail_place(earlier, "duplicate-name", f"{message}: the last one is written")
        if len(by_key) > 1:
            first, other, *_ = by_key
            is_form = unicodedata.normalize("NFC", first) == unicodedata.normalize("NFC", other)
            code = "unicode-collision" if is_form else "case-collision"
            place = by_key[other]
            message = f"{first!r} and {other!r} are one name to some file systems"
            self._warnings.add(Finding(code, message, columns.offset[place], other[:200]))

    def _warn_clashes(self) -> None:
        """Warn of keys that are also another key's folder, and of keys that S3 is odd about."""
        seen: set[str] = set()
        for folder in self._folders:
            walked = folder
            while walked and walked not in seen and len(seen) < _MOST_FOLDERS:
                seen.add(walked)
                if hash(fold_key(walked)) in self._folded:
                    message = "both a file and a folder: a download to a file system breaks"
                    self._warnings.add(
                        Finding("file-dir-prefix-conflict", message, None, walked[:200])
                    )
                walked = walked.rpartition("/")[0]
        for key in _S3_SPECIAL:
            if hash(key) in self._folded:
                message = "some S3 clients cannot address this key"
                self._warnings.add(Finding("name-s3-special", message, None, key))
        self._folded, self._folders, self._directories = set(), set(), set()

    def _settle_places(self) -> None:
        """Sort by offset; no member may reach the next one, nor the directory."""
        columns, start = self._columns, self._location.start
        last = max(columns.end, default=0)
        if last > start:
            message = f"a member would end at {last}, the directory begins at {start}"
            raise RejectedError(Finding("member-out-of-bounds", message, start))
        columns.sort()
        offsets, ends = columns.offset, columns.end
        if any(map(gt, ends, islice(offsets, 1, None))):
            self._refuse_overlap(offsets, ends)
        columns.stop = offsets[1:]
        if offsets:
            columns.stop.append(start)
        columns.end = array("Q")

    def _refuse_overlap(self, offsets: array[int], ends: array[int]) -> None:
        for place in range(len(offsets) - 1):
            if ends[place] > offsets[place + 1]:
                path = self._columns.path[place]
                following = self._columns.path[place + 1]
                message = (
                    f"it ends at {ends[place]} or later,"
                    f" {following[:200]!r} begins at {offsets[place + 1]}"
                )
                raise RejectedError(Finding("overlap", message, offsets[place], path[:200]))


def fold_key(key: str) -> str:
    """Return what file systems that ignore case or Unicode form make of a key."""
    if key.isascii():
        return key.lower()
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", key).casefold())


def _sum_members(column: array[int], kind: bytearray) -> int:
    return sum(value for value, which in zip(column, kind, strict=True) if which == MEMBER)


def settle_index(
    headers: Iterable[CentralHeader],
    location: DirectoryLocation,
    policy: Policy,
    key_of: Callable[[str], str],
) -> Index:
    """Settle an index in one call; see `IndexBuilder` for feeding it in pieces.

    Raises:
        RejectedError: the index as a whole is broken or has two meanings.
    """
    builder = IndexBuilder(location, policy, key_of)
    source = iter(headers)
    while batch := list(islice(source, _BATCH)):
        builder.add(batch)
    return builder.finish()
