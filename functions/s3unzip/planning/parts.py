"""Find the parts of a split archive, and check that they belong together.

The end record says how many parts there are, and the name where they are. Each part is asked for
once and pinned to the version that is there, so that a part which changes later ends the run.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

from msgspec.structs import replace

from s3unzip.errors import NotFoundError, RejectedError
from s3unzip.finding import Finding
from s3unzip.stores.parts import (
    NAMED_SCHEMES,
    first_piece_name,
    is_first_piece,
    last_part_name,
    locate_part,
    part_name,
)
from s3unzip.stores.ports import Tail
from s3unzip.zip import ByteRange, count_disks, first_members
from s3unzip.zip.records import EOCD_SIGNATURE, LOCAL_SIGNATURE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from s3unzip.model import Location, Pin
    from s3unzip.stores.calls import Calls
    from s3unzip.stores.ports import Source
    from s3unzip.zip import Disks, Member

THREADS = 16  # parts that are asked for at once
SHIFTED = frozenset({"overlap", "member-out-of-bounds"})  # what a part of another size looks like


def read_whole_tail(
    source: Source, location: Location, length: int, max_parts: int, calls: Calls
) -> Tail:
    """Return the last bytes and the pin of an archive, which may have several parts.

    A part that is missing is told in the `refusal` of the tail, so that the run can be named.

    Raises:
        StorageError: the archive cannot be read.
        ServiceFaultError: it cannot be read now.
    """
    if is_first_piece(location):
        return _read_pieces(source, location, length, max_parts, calls)
    tail = calls.run("get", lambda: source.tail(location, length))
    count = count_disks(tail.data)
    if count > 1 and not tail.pin.parts and tail.refusal is None:
        return _join_parts(source, location, tail, (count, max_parts), calls)
    if EOCD_SIGNATURE in tail.data:
        return tail
    if last := last_part_name(location):
        message = f"give its last part as the archive: {last}"
    elif first := first_piece_name(location):
        message = f"give its first piece as the archive: {first}"
    else:
        return tail
    return tail._replace(refusal=Finding("multi-disk", message))


def _join_parts(
    source: Source, location: Location, tail: Tail, counts: tuple[int, int], calls: Calls
) -> Tail:
    """Return the tail of a split archive, of which `tail` is the last part's."""
    count, max_parts = counts
    if count > max_parts:
        message = f"{count:,} parts, the limit is {max_parts:,}"
        return tail._replace(refusal=Finding("too-many-parts", message))
    if location.scheme not in NAMED_SCHEMES or locate_part(location, 1, count) is None:
        message = f"it has {count:,} parts; name it NAME.zip, beside NAME.z01 and the others"
        return tail._replace(refusal=Finding("part-missing", message))
    others = range(1, count)
    with ThreadPoolExecutor(THREADS, thread_name_prefix="parts") as pool:
        found = list(pool.map(lambda n: _look(source, location, n, count, calls), others))
    missing = [number for number, pin in zip(others, found, strict=True) if pin is None]
    if missing:
        first = locate_part(location, missing[0], count)
        message = f"{_name(first)}, part {missing[0]:,} of {count:,}"
        if len(missing) > 1:
            message += f", and {len(missing) - 1:,} more"
        return tail._replace(refusal=Finding("part-missing", message))
    return tail._replace(pin=_join_pins([*filter(None, found), tail.pin], tail.pin))


def _read_pieces(
    source: Source, location: Location, length: int, max_parts: int, calls: Calls
) -> Tail:
    """Return the tail of an archive that was cut into pieces, of which the first is named."""
    pins = [calls.run("head", lambda: source.head(location))]
    with ThreadPoolExecutor(THREADS, thread_name_prefix="parts") as pool:
        while len(pins) <= max_parts:
            following = range(len(pins) + 1, len(pins) + 1 + THREADS)
            found = list(pool.map(lambda n: _look(source, location, n, n + 1, calls), following))
            known = found.index(None) if None in found else len(found)
            pins += filter(None, found[:known])
            if known < len(found):
                break
    pin = _join_pins(pins, pins[0])
    archive = source.pinned(location, pin)
    want = ByteRange(max(0, pin.size - length), pin.size)
    tail = Tail(calls.run("get", lambda: archive.read(want)), pin)
    if len(pins) > max_parts:
        message = f"more than {max_parts:,} parts, the limit"
        return tail._replace(refusal=Finding("too-many-parts", message))
    begins = calls.run("get", lambda: archive.read(ByteRange(0, min(4, pin.size))))
    if begins == LOCAL_SIGNATURE and EOCD_SIGNATURE not in tail.data:
        absent = _name(locate_part(location, len(pins) + 1, len(pins) + 1))
        message = f"{absent}, after {len(pins):,} without the archive's end"
        return tail._replace(refusal=Finding("part-missing", message))
    return tail


def _join_pins(pins: Sequence[Pin], named: Pin) -> Pin:
    if len(pins) == 1:
        return named
    return replace(named, size=sum(pin.size for pin in pins), parts=tuple(pins))


def _look(source: Source, location: Location, number: int, count: int, calls: Calls) -> Pin | None:
    """Return the pin of part `number`; None if it is not there."""
    where = locate_part(location, number, count)
    if where is None:
        return None
    try:
        return calls.run("head", lambda: source.head(where))
    except NotFoundError:
        return None


def _name(location: Location | None) -> str:
    return "" if location is None else part_name(location)


@contextmanager
def blaming_parts(disks: Disks) -> Iterator[None]:
    """Say of members that overlap that a part has another size, if the archive has parts."""
    try:
        yield
    except RejectedError as refusal:
        finding = refusal.finding
        if not disks.is_split or finding.code not in SHIFTED:
            raise
        message = f"a part is shorter than it was: {finding.message}"
        raise RejectedError(replace(finding, code="part-wrong", message=message)) from None


def check_parts(
    members: Sequence[Member],
    disks: Disks,
    read: Callable[[ByteRange], bytes],
    location: Location,
) -> None:
    """Check that each part has a member where the directory says that its first one is.

    Reads four bytes of each part on which a member begins.

    Raises:
        RejectedError: a part has other bytes: parts were mixed up, or are of different archives.
    """
    if not disks.is_split:
        return
    firsts = list(first_members(members, disks))

    def begins(found: tuple[int, Member]) -> bool:
        at = found[1].offset
        return read(ByteRange(at, at + len(LOCAL_SIGNATURE))) == LOCAL_SIGNATURE

    with ThreadPoolExecutor(THREADS, thread_name_prefix="parts") as pool:
        for (disk, member), is_good in zip(firsts, pool.map(begins, firsts), strict=True):
            if not is_good:
                name = _name(locate_part(location, disk + 1, disks.last + 1))
                message = f"{name} has no member at byte {member.offset - disks.starts[disk]:,}"
                raise RejectedError(Finding("part-wrong", message))
