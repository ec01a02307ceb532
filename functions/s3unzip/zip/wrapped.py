"""Archives above 4 GiB without ZIP64, whose sizes and offsets are modulo 2^32.

macOS writes them (Archive Utility before macOS 15.3, and ditto): it cuts each number to its lower
32 bits, in both headers, in the data descriptors and in the end record. Its own tools unpack them.
See https://github.com/thejoshwolfe/yauzl/issues/69. The rules, by which they are read here:

1. The directory ends at the end record, so its size says where it begins. If that is a multiple
   of 4 GiB after the declared offset, the first local header tells this from a prefix that the
   offsets do not count.
2. Members lie in the order of the directory and share no bytes. So a local header lies at the
   first place at or after the end of the member before it whose lower 32 bits are its offset.
3. If 4 GiB or more are left before the directory, members of 4 GiB or more take them. The local
   headers after such a member are as many bytes later. Bisection finds the member: a local header
   with the right name must be at exactly one of the possible places.
4. The size of a stored member follows. That of a deflated one is known when it is inflated: its
   lower 32 bits, the CRC-32 and the end of the stream must fit. Until then it is a guess.
5. Nothing else is trusted: local headers and descriptors are compared as those of any member, by
   their lower 32 bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from s3unzip.zip import records
from s3unzip.zip.local import is_local_header
from s3unzip.zip.members import HeaderTable
from s3unzip.zip.values import WRAP, ByteRange, Reads, reject

UNPROVEN = "offsets-unproven"
MAX_PROBES = 4_096  # offsets at which local headers are searched for
_EXPANSION = 1_000  # deflate adds at most a thousandth to data that it cannot compress


def place_after(offset: int, stop: int) -> int:
    """Return the first place at or after `stop` whose lower 32 bits are those of `offset`."""
    return offset + max(0, -(-(stop - offset) // WRAP)) * WRAP


def can_wrap(size: int, compressed: int) -> bool:
    """Return whether a deflated member may be 4 GiB larger than `size`."""
    return size + WRAP <= compressed * records.MAX_DEFLATE_RATIO


def guess_size(size: int, compressed: int) -> int:
    """Return the smallest plausible size of a member, of which `size` has the lower 32 bits.

    `compressed` is the full length of its compressed data, in bytes. Below 4 GiB few members have
    wrapped sizes. But writers that flush often may double the length of what they deflate. So any
    size from half of `compressed` on is plausible. From 4 GiB on deflate adds at most a thousandth.
    The least size is then less than 4 GiB below `compressed`, so a stored member gets exactly the
    size of its data.
    """
    least_size = compressed // 2
    if compressed >= WRAP:
        least_size = compressed - min(compressed // _EXPANSION, WRAP - 1)
    return place_after(size, least_size)


class _Span(NamedTuple):
    """Headers `first` to before `stop`.

    The local headers at its beginning and end lie `least` and `most` times 4 GiB later.
    """

    first: int
    stop: int
    least: int
    most: int

    def split(self, number: int, times: int) -> tuple[_Span, _Span]:
        """Return both sides of a header whose local header lies `times` times 4 GiB later."""
        return self._replace(stop=number, most=times), self._replace(first=number, least=times)


def find_long_members(table: HeaderTable, start: int) -> Reads[dict[int, int]]:
    """Return the numbers of members of 4 GiB or more, and how many times 4 GiB each is longer.

    The offsets of `table` are the least ones, the directory begins at `start`. At first the headers
    beside each multiple of 4 GiB are looked for: they show that the directory is in the order of
    the offsets. They cut the headers into spans. Then each span is halved until it has one member,
    or no member that is longer.

    Raises:
        RejectedError: the local headers do not prove one reading.
    """
    total = (start - table.stops[-1]) // WRAP
    probes = _Probes(table, start)
    spans = [_Span(0, len(table.offsets), 0, total)]
    for number in _find_crossings(table):
        span = spans.pop()
        times = yield from probes.find(number, range(span.least, total + 1))
        spans += span.split(number, times)
    longer: dict[int, int] = {}
    while spans:
        span = spans.pop()
        if span.least == span.most:
            continue
        if span.first + 1 == span.stop:
            longer[span.first] = span.most - span.least
            continue
        middle = (span.first + span.stop) // 2
        times = yield from probes.find(middle, range(span.least, span.most + 1))
        spans += span.split(middle, times)
    return longer


def _find_crossings(table: HeaderTable) -> Iterator[int]:
    """Yield the numbers of headers on both sides of each multiple of 4 GiB, and of the last one.

    If the directory is in another order, a local header is missing at one of them.
    """
    heights = [offset // WRAP for offset in table.offsets]
    last = len(heights) - 1
    for number in range(1, last):
        if heights[number - 1] != heights[number] or heights[number] != heights[number + 1]:
            yield number
    yield last


class _Probes:
    """Looks for local headers at offsets that are multiples of 4 GiB apart."""

    def __init__(self, table: HeaderTable, start: int) -> None:
        self._table = table
        self._start = start
        self._probes_left = MAX_PROBES

    def find(self, number: int, times: range) -> Reads[int]:
        """Return by how many of `times` 4 GiB a local header lies after its least offset."""
        member = self._table.member(number)
        name = self._table.raw_name(number)
        self._probes_left -= len(times)
        if self._probes_left < 0:
            reject(UNPROVEN, f"local headers at more than {MAX_PROBES:,} places", member.offset)
        fitting: list[int] = []
        for factor in times:
            at = member.offset + factor * WRAP
            raw = yield ByteRange(at, min(at + records.LOCAL_LENGTH + len(name), self._start))
            if is_local_header(raw, name):
                fitting.append(factor)
        if len(fitting) != 1:
            message = f"{len(fitting)} of {len(times)} places have the header of {member.path!r}"
            reject(UNPROVEN, message, member.offset)
        return fitting[0]


def stretch(table: HeaderTable, long_members: dict[int, int]) -> Iterator[int]:
    """Give long members their sizes, and those after them their offsets; yield the long ones."""
    shift = 0
    for number in range(min(long_members, default=0), len(table.offsets)):
        longer = long_members.get(number, 0) * WRAP
        table.offsets[number] += shift
        table.stops[number] += shift + longer
        shift += longer
        if longer:
            table.lengthen(number, longer)
            compressed = table.compressed_sizes[number]
            table.sizes[number] = guess_size(table.sizes[number], compressed)
            yield number
