"""Archives above 4 GiB without ZIP64, whose sizes and offsets are modulo 2^32.

macOS writes them (Archive Utility before macOS 15.3, and ditto): it cuts each number to its lower
32 bits, in both headers, in the data descriptors and in the end record. Its own tools unpack them.
See https://github.com/thejoshwolfe/yauzl/issues/69. They are read by these rules:

1. The directory ends at the end record, so its size says where it begins. If it begins a multiple
   of 4 GiB after its declared offset, either the offsets are modulo 4 GiB, or they do not count a
   prefix. The place of the first local header decides.
2. Members lie in the order of the directory and share no bytes. So a local header lies at the
   first offset after the member before it whose lower 32 bits are the declared offset.
3. If 4 GiB or more are left before the directory, they belong to members of 4 GiB or more. All
   local headers after such a member are as many bytes later. Bisection finds the member: a local
   header with the right name must be at exactly one of the possible offsets.
4. The size of a stored member is the length of its data. The size of a deflated member is known
   when the member is inflated: the lower 32 bits of the size, the CRC-32 and the end of the stream
   must be right. Until then the size is a guess.
5. All other checks are those of ordinary members, on the lower 32 bits.
"""

from collections.abc import Iterator
from itertools import pairwise

from s3unzip.zip import records
from s3unzip.zip.local import is_local_header
from s3unzip.zip.members import HeaderTable
from s3unzip.zip.values import WRAP, ByteRange, Reads, reject

UNPROVEN = "offsets-unproven"
MAX_PROBES = 4_096  # offsets at which local headers are searched for


def place_after(offset: int, stop: int) -> int:
    """Return the smallest number, `stop` or higher, whose lower 32 bits are `offset`.

    Returns `offset` itself if it is not below `stop`.
    """
    return offset + max(0, -(-(stop - offset) // WRAP)) * WRAP


def guess_size(size: int, compressed: int) -> int:
    """Return the smallest plausible size of a member; `size` is its lower 32 bits.

    `compressed` is the full length of its compressed data, in bytes. Below 4 GiB few members have
    wrapped sizes, but some writers flush so often that deflate doubles the length: the size may be
    half of `compressed` or more. If `compressed` is 4 GiB or more, deflate is assumed to add at
    most a thousandth. The minimum is then less than 4 GiB below `compressed`, so a stored member
    gets exactly the size of its data.
    """
    min_size = compressed // 2
    if compressed >= WRAP:
        min_size = compressed - min(compressed // 1_000, WRAP - 1)
    return place_after(size, min_size)


def find_long_members(table: HeaderTable, start: int) -> Reads[dict[int, int]]:
    """Return how many times 4 GiB a member is longer than declared, by the number of its header.

    The offsets of `table` are the smallest possible ones; the directory begins at `start`. First
    the local headers beside each multiple of 4 GiB are searched for: they show that the directory
    is in the order of the offsets, and they cut the headers into spans. Then each span is halved
    until it has only one member, or all of its members have their declared lengths.

    Raises:
        RejectedError: the local headers do not prove one reading.
    """
    total = (start - table.stops[-1]) // WRAP  # how many times 4 GiB are missing in the sizes
    count = len(table.offsets)
    # How many times 4 GiB a local header lies after its smallest possible offset, by its number.
    times = {0: 0, count: total}
    probes = _Probes(table, start)
    min_times = 0  # the number of times never decreases from one header to the next
    for number in _find_crossings(table):
        min_times = yield from probes.find(number, range(min_times, total + 1))
        times[number] = min_times
    if times[0]:  # changed only if the first header is also the last one
        reject(UNPROVEN, "the first local header is not at its declared offset", table.offsets[0])
    lengths: dict[int, int] = {}
    spans = list(pairwise(sorted(times)))  # headers from the first number to before the second
    while spans:
        first, stop = spans.pop()
        if times[first] == times[stop]:  # none of its members is longer
            continue
        if first + 1 == stop:  # this member alone is longer
            lengths[first] = times[stop] - times[first]
            continue
        middle = (first + stop) // 2
        times[middle] = yield from probes.find(middle, range(times[first], times[stop] + 1))
        spans += (first, middle), (middle, stop)
    return lengths


def _find_crossings(table: HeaderTable) -> Iterator[int]:
    """Yield the numbers of the headers beside each multiple of 4 GiB, and of the last header.

    If the directory is not in the order of the offsets, one of these local headers is missing.
    """
    # Number of multiples of 4 GiB up to each offset, without 0.
    multiples = [offset // WRAP for offset in table.offsets]
    last = len(multiples) - 1
    for number in range(1, last):
        if multiples[number - 1] < multiples[number + 1]:
            yield number
    yield last


class _Probes:
    """Searches for local headers at offsets that are multiples of 4 GiB apart."""

    def __init__(self, table: HeaderTable, start: int) -> None:
        self._table = table
        self._start = start
        self._probes_left = MAX_PROBES

    def find(self, number: int, times: range) -> Reads[int]:
        """Return how many times 4 GiB the local header lies after its smallest possible offset.

        `times` has the numbers to try. Refuses the archive unless exactly one of them is right.
        """
        member = self._table.member(number)
        name = member.name_bytes  # only its beginning, if it was cut
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
            reject(
                UNPROVEN,
                f"{len(fitting)} of {len(times)} places have the header of {member.path!r}",
                member.offset,
            )
        return fitting[0]


def lengthen_members(table: HeaderTable, long_members: dict[int, int]) -> None:
    """Set the sizes of long members, and the offsets of the members after them.

    `long_members` is the result of `find_long_members`.
    """
    shift = 0  # bytes by which the long members so far are longer than declared
    for number in range(min(long_members, default=0), len(table.offsets)):
        length = long_members.get(number, 0) * WRAP
        table.offsets[number] += shift
        shift += length
        table.stops[number] += shift
        if length:
            table.lengthen(number, length)
            table.sizes[number] = guess_size(table.sizes[number], table.compressed_sizes[number])
