"""Many archives by size and number of entries, and what a few of them tell of the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from s3unzip.forecast.fixtures import Fixture

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# Assumption where no directory was read: the ratio of the fixture of 400,000 members.
USUAL_EXPANSION = 2.5
USUAL_MEMBER = 4_000  # bytes of an archive for each of its members
MIN_ENTRY = 76  # bytes of an archive for each entry: both its headers (APPNOTE 4.3.7, 4.3.12)
MAX_MEMBERS = 10_000_000  # of an archive that stands for others; the simulation makes them all
NO_DEFLATE = 1.02  # bytes written for each that is read; below it, members count as stored


class ArchiveSize(NamedTuple):
    """What is known of an archive whose directory was not read."""

    size: int  # bytes
    entries: int | None  # that its end record declares; None: not known


class ReadArchive(Struct, frozen=True):
    """An archive whose directory was read; sizes in bytes."""

    archive: ArchiveSize
    members: int  # that the options select
    bytes_in: int  # of them, compressed
    bytes_out: int


class Census:
    """Counts archives by size and number of entries, in memory that does not grow with them."""

    def __init__(self) -> None:
        self.archives = 0
        self.size = 0
        self.unknown = 0  # archives whose entries are not known
        self.entries = 0  # of the others
        self.known_size = 0  # bytes of the others
        self._classes: dict[tuple[int, int], list[int]] = {}

    def add(self, archive: ArchiveSize) -> None:
        """Count an archive."""
        self.archives += 1
        self.size += archive.size
        if archive.entries is None:
            self.unknown += 1
        else:
            self.entries += count_plausible(archive)
            self.known_size += archive.size
        sums = self._classes.setdefault(class_of(archive), [0, 0, 0])
        sums[0] += 1
        sums[1] += archive.size
        sums[2] += count_plausible(archive)

    def classes(self) -> Iterator[tuple[tuple[int, int], int, ArchiveSize]]:
        """Yield the name of each class, how many archives it has, and their mean."""
        for name, (count, size, entries) in sorted(self._classes.items()):
            mean = max(1, round(entries / count)) if name[1] >= 0 else None
            yield name, count, ArchiveSize(size // count, mean)


class Shape(NamedTuple):
    """How archives turn into members."""

    selected: float  # members that the options select, of the entries
    compressed: float  # bytes of them in the archive, of the archive's size
    expansion: float  # bytes written for each of these bytes
    member: float  # bytes of an archive for each of its entries

    @classmethod
    def of(cls, census: Census, sample: Sequence[ReadArchive]) -> Shape:
        """Return the ratios of the sample; what it does not tell is assumed."""
        size = sum(one.archive.size for one in sample)
        entries = sum(count_plausible(one.archive) for one in sample)
        bytes_in = sum(one.bytes_in for one in sample)
        bytes_out = sum(one.bytes_out for one in sample)
        member = census.known_size / census.entries if census.entries else USUAL_MEMBER
        return cls(
            selected=sum(one.members for one in sample) / entries if entries else 1.0,
            compressed=bytes_in / size if size else 1.0,
            expansion=bytes_out / bytes_in if bytes_in else USUAL_EXPANSION,
            member=member,
        )

    def make_fixture(self, archive: ArchiveSize) -> Fixture:
        """Return an archive of equal members that stands for `archive`."""
        entries = archive.entries
        if entries is None:
            entries = max(1, round(archive.size / max(1.0, self.member)))
        members = min(MAX_MEMBERS, max(1, round(entries * self.selected)))
        compressed = max(1, int(archive.size * self.compressed / members))
        return Fixture(
            name="",
            title="",
            members=members,
            size=max(1, int(compressed * self.expansion)),
            compressed=compressed,
            stored=self.expansion <= NO_DEFLATE,
        )


def count_plausible(archive: ArchiveSize) -> int:
    """Return the entries that an archive of this size can have; 0: not known."""
    return min(archive.entries or 0, archive.size // MIN_ENTRY)


def class_of(archive: ArchiveSize) -> tuple[int, int]:
    """Return the class of an archive: its size and its entries, each by its power of two."""
    known = archive.entries is not None
    return archive.size.bit_length(), count_plausible(archive).bit_length() if known else -1
