"""Archives above 4 GiB without ZIP64, whose sizes and offsets are modulo 2^32.

Archive Utility (before macOS 15.3) and ditto write such archives. They truncate each number to its
lower 32 bits, in both headers, in the data descriptors and in the end record. The tools of macOS
can unpack these archives. See https://github.com/thejoshwolfe/yauzl/issues/69.
s3unzip reads such archives according to these rules:

1. The directory ends at the end record, so its start can be computed from its size. If the start is
   4 GiB or a multiple of 4 GiB after the declared offset, then either the offsets are modulo 4 GiB,
   or the offsets do not include a prefix. The position of the first local header decides between
   these cases.
2. Members are in the order of the directory and do not share bytes. A local header is therefore at
   the first offset after the previous member whose lower 32 bits are the declared offset.
3. If 4 GiB or more remain before the directory, these bytes belong to members of 4 GiB or more. All
   local headers after such a member are shifted by the same number of bytes. Bisection finds such a
   member: a local header with the right name must be at exactly one of the possible offsets.
4. The size of a stored member is the length of its data. The size of a deflated member is known
   only when the member has been inflated: the lower 32 bits of the size, the CRC-32 and the end of
   the stream must be correct. Until then, the size is a guess.
5. All other checks are the same as for ordinary members, but use only the lower 32 bits.
"""

from collections.abc import Iterator
from itertools import pairwise

from s3unzip.zip import records
from s3unzip.zip.local import is_local_header
from s3unzip.zip.members import HeaderTable
from s3unzip.zip.values import FLAG_WRAPPED, WRAP, ByteRange, Reads, reject

UNPROVEN = "offsets-unproven"
MAX_PROBES = 4_096  # maximum number of offsets at which to look for local headers


def place_after(offset: int, stop: int) -> int:
    """Return the smallest number that is at least `stop` and equals `offset` modulo 2^32.

    If `offset` is at least `stop`, `offset` itself is returned.
    """
    wraps = max(0, -(-(stop - offset) // WRAP))  # rounded up
    return offset + wraps * WRAP


def guess_size(low_bits: int, compressed: int) -> int:
    """Return the smallest plausible size of a member; `low_bits` are the lower 32 bits of the size.

    `compressed` is the full length of the compressed data, in bytes. If this length is below 4 GiB,
    the result is nearly always `low_bits`.
    """
    # Some writers flush so often that deflate doubles the length.
    min_size = compressed // 2
    if compressed >= WRAP:
        # If the minimum were half of such a length, the returned size could be 4 GiB too small.
        # So deflate is assumed to add at most one thousandth to the length. The minimum is less
        # than 4 GiB below `compressed`, so the size of a stored member is exactly its length.
        min_size = compressed - min(compressed // 1_000, WRAP - 1)
    return place_after(low_bits, min_size)


def find_long_members(table: HeaderTable, start: int) -> Reads[dict[int, int]]:
    """Return how many times 4 GiB to add to the length of each long member, by header number.

    `table` contains at least one header, and the smallest possible offset of each header. The
    directory begins at `start`. The function first looks for the local headers before and after
    each multiple of 4 GiB. These headers show that the directory is in the order of the offsets,
    and divide it into spans. Then spans are halved until each span contains a single member, or
    only members that have their declared lengths.

    Raises:
        RejectedError: the local headers do not prove that there is only one interpretation.
    """
    total = (start - table.stops[-1]) // WRAP  # number of wraps to add to all lengths together
    # How many wraps of 4 GiB to add to the smallest possible offset, by header number. The number
    # after the last header stands for the directory.
    wraps = {0: 0, len(table.offsets): total}
    probes_left = MAX_PROBES

    def find_wraps(number: int, candidates: range) -> Reads[int]:
        nonlocal probes_left
        probes_left -= len(candidates)
        if probes_left < 0:
            reject(
                UNPROVEN,
                f"local headers could be at more than {MAX_PROBES:,} offsets",
                table.offsets[number],
            )
        return (yield from _find_wraps(table, start, number, candidates))

    min_wraps = 0  # the number of wraps never decreases from one header to the next
    for number in _find_crossings(table):
        min_wraps = yield from find_wraps(number, range(min_wraps, total + 1))
        wraps[number] = min_wraps
    if wraps[0]:  # header 0 was probed only if it is also the last header
        reject(UNPROVEN, "the first local header is not at its declared offset", table.offsets[0])
    lengths: dict[int, int] = {}
    spans = list(pairwise(sorted(wraps)))  # each span contains the headers [first, stop)
    while spans:
        first, stop = spans.pop()
        if wraps[first] == wraps[stop]:  # no member in the span is longer than declared
            continue
        if first + 1 == stop:  # only this member is longer than declared
            lengths[first] = wraps[stop] - wraps[first]
            continue
        middle = (first + stop) // 2
        wraps[middle] = yield from find_wraps(middle, range(wraps[first], wraps[stop] + 1))
        spans += (first, middle), (middle, stop)
    return lengths


def _find_crossings(table: HeaderTable) -> Iterator[int]:
    """Yield the numbers of the headers around each multiple of 4 GiB, and of the last header.

    The caller looks for the local headers at their computed offsets. If the directory is not in the
    order of the offsets, the caller does not find all of these local headers.
    """
    # How many times 4 GiB fits into each offset.
    multiples = [offset // WRAP for offset in table.offsets]
    last = len(multiples) - 1
    for number in range(1, last):
        # There is a multiple of 4 GiB between this header and the previous or the next header.
        if multiples[number - 1] < multiples[number + 1]:
            yield number
    yield last


def _find_wraps(table: HeaderTable, start: int, number: int, candidates: range) -> Reads[int]:
    """Return how many wraps of 4 GiB to add to the smallest possible offset of a local header.

    `candidates` contains the numbers to try, and the directory begins at `start`. Refuses the
    archive unless exactly one number is correct.
    """
    member = table.member(number)
    name = member.name_bytes  # or the beginning of a name that was cut
    fitting: list[int] = []
    for wraps in candidates:
        at = member.offset + wraps * WRAP
        raw = yield ByteRange(at, min(at + records.LOCAL_LENGTH + len(name), start))
        if is_local_header(raw, name):
            fitting.append(wraps)
    if len(fitting) != 1:
        reject(
            UNPROVEN,
            f"the header of {member.path!r} is at {len(fitting)} of {len(candidates)} offsets",
            member.offset,
        )
    return fitting[0]


def lengthen_members(table: HeaderTable, long_members: dict[int, int]) -> None:
    """Set the sizes of long members, and the offsets of the members after them.

    `long_members` is the result of `find_long_members`. It maps the header number of each long
    member to the number of times that 4 GiB must be added to the declared length.
    """
    shift = 0  # number of bytes by which the long members so far exceed their declared lengths
    for number in range(min(long_members, default=0), len(table.offsets)):
        excess = long_members.get(number, 0) * WRAP
        table.offsets[number] += shift
        # The end of a long member is shifted by its own excess, too.
        shift += excess
        table.stops[number] += shift
        if excess:
            table.compressed_sizes[number] += excess
            table.flags[number] |= FLAG_WRAPPED
            table.sizes[number] = guess_size(table.sizes[number], table.compressed_sizes[number])
