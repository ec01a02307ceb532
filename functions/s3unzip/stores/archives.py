"""Archives with one or more parts: find, pin and check the parts, and read them as one archive.

Rules:

* An archive has one name. A split archive (APPNOTE 8.3.3) has the name of its last part. For
  example, the parts of ``a.zip`` are ``a.z01``, ``a.z02`` and so on; the last part is ``a.zip``.
  The part ``a.z99`` is followed by ``a.z100``. WinZip also writes ``a.zipx`` with the parts
  ``a.zx01``, ``a.zx02`` and so on. An archive that was cut into pieces has the name of its first
  piece, such as ``a.zip.001``, which is followed by ``a.zip.002``. A file ``a.001`` is a piece only
  if the file has no end record.
* Each part is pinned to its own version. The pin of the archive contains the total size of the
  parts, and the ETag and version of the part that the location names.
* If a part is missing, or if there are too many parts, the tail contains a refusal. No error is
  raised, because the run of the refused archive needs an id and a report.
* A part with the wrong size shifts all parts after it. `check_parts` and `blaming_parts` detect
  that fault from the central directory, and raise `part-wrong`.
* `ports.PinnedArchive` joins the parts into one address space.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Protocol

from msgspec.structs import replace

from s3unzip.errors import Finding, NotFoundError, RejectedError, UsageError
from s3unzip.model import Location, Pin
from s3unzip.stores.calls import Calls, count_request, map_ahead, read_until_fault
from s3unzip.stores.ports import Buffer, PinnedArchive, Store, Tail
from s3unzip.zip import (
    ByteRange,
    Disks,
    Member,
    count_disks,
    find_boundaries,
    find_data_stop,
    fold_key,
)
from s3unzip.zip.records import EOCD_SIGNATURE, LOCAL_LENGTH, LOCAL_SIGNATURE

PARTS_AT_ONCE = 16  # number of parts for which requests are sent concurrently

_PIECE = re.compile(r"\.zip\.([0-9]{3,})\Z", re.IGNORECASE)
_FIRST_PIECE = re.compile(r"(?P<zip_suffix>\.zip)?\.(?P<number>0{2,}1)\Z", re.IGNORECASE)


class Source(Protocol):
    """A store of archives. Each method makes one attempt: see `stores.ports`."""

    def stat(self, location: Location) -> Tail:
        """Pin the current version with one request; return a tail without bytes."""

    def stream(self, location: Location, pin: Pin, want: ByteRange) -> Iterator[Buffer]:
        """Yield the bytes of a range as they arrive, using one request for the pinned version.

        Each piece is at most a few MiB long. If the body is cut short, `ServiceFaultError` is
        raised after the received bytes were yielded; the caller resumes with a new range that
        begins at the next byte. `pin` pins only the object at `location`, because each part of a
        split archive has its own pin.
        """

    def tail(self, location: Location, length: int) -> Tail:
        """Return the pin and the last `length` bytes, or fewer bytes if the body is cut short.

        This method requests the size first, then the range. If a store can send the size and the
        range in one response, its source overrides this method. If the body is cut short,
        `read_end` reads the missing bytes.
        """
        count_request("head")
        current = self.stat(location)
        size = current.pin.size
        end = ByteRange(max(0, size - length), size)
        data = read_until_fault(self.stream(location, current.pin, end))
        return current._replace(data=data)

    def pinned(self, location: Location, pin: Pin, end: bytes = b"") -> PinnedArchive:
        """Return a reader for the pinned version of every part; send no request.

        Args:
            end: last bytes of the archive, if they are in memory.
        """
        pins = pin.parts or (pin,)
        readers = [
            partial(self.stream, part, part_pin)
            for part, part_pin in zip(locate_parts(location, pin), pins, strict=True)
        ]
        return PinnedArchive(readers, [part_pin.size for part_pin in pins], end)

    def delete(self, location: Location, pin: Pin) -> None:  # noqa: ARG002 - used by S3 and files
        """Delete only the pinned version; do nothing if that version no longer exists.

        Stores that cannot delete inherit this method, which always raises an error. In other
        stores, this method raises `SourceChangedError` if another version is at the location, and
        does not delete that version. This method and `tag` may be called again after a fault. The
        caller counts one request for each call of these two methods. If a method sends further
        requests, the method counts them (`count_request`).
        """
        raise UsageError(f"{location.public}: only s3:// objects and files can be deleted")

    def tag(self, location: Location, pin: Pin, tags: Mapping[str, str]) -> None:  # noqa: ARG002 - used by S3
        """Add `tags` to the existing tags of the pinned version.

        Raises `SourceChangedError` if the version is gone, and `StorageError` if the version cannot
        be tagged. Stores without tags inherit this method, which always raises an error.
        """
        raise UsageError(f"{location.public}: only s3:// objects can be tagged")

    def tags(self, location: Location, pin: Pin) -> dict[str, str]:  # noqa: ARG002 - used by S3
        """Return the tags of the pinned version, using one request; only S3 supports tags."""
        return {}


def read_end(
    source: Source, location: Location, calls: Calls, length: int, store: Store = "source"
) -> Tail:
    """Return the last `length` bytes of one object; if the body is cut short, request the rest."""
    tail = calls.run("get", lambda: source.tail(location, length), store)
    size = tail.pin.size
    # If no byte is missing, the range is empty, and no request is sent.
    missing = ByteRange(max(0, size - length) + len(tail.data), size)
    missing_data = calls.read(source.pinned(location, tail.pin), missing, store)
    return tail._replace(data=tail.data + missing_data)


def read_whole_tail(
    source: Source, location: Location, calls: Calls, *, length: int, max_parts: int
) -> Tail:
    """Return the last `length` bytes of an archive, and a pin that covers all its parts.

    The parts belong to a split archive (a.z01, a.zip), or are the pieces into which a file was cut
    (a.zip.001). If the parts cannot be joined, the tail contains a refusal.
    """
    # A file a.zip.001 is always a piece. A file a.001 is a piece only if it has no end record.
    piece_name = _FIRST_PIECE.search(_file_name(location))
    if piece_name is not None and piece_name["zip_suffix"]:
        return _read_pieces(source, location, calls, length=length, max_parts=max_parts)
    tail = read_end(source, location, calls, length)
    count = count_disks(tail.data)  # number of parts according to the end record
    if count > max_parts:
        return _refuse(tail, "too-many-parts", f"{count:,} parts; the limit is {max_parts:,}")
    if count > 1:
        return _join_parts(source, location, calls, tail=tail, count=count)
    if EOCD_SIGNATURE in tail.data:
        return tail
    # A file without an end record may be the first piece of an archive (a.001), or a part of a
    # split archive that is not the last part (a.z01).
    if piece_name is not None:
        return _read_pieces(source, location, calls, length=length, max_parts=max_parts)
    advice = advise_name(location)
    if advice is not None:
        tail = _refuse(tail, "multi-disk", advice)
    return tail


def _refuse(tail: Tail, code: str, message: str) -> Tail:
    return tail._replace(refusal=Finding(code, message))


def _join_parts(
    source: Source, location: Location, calls: Calls, *, tail: Tail, count: int
) -> Tail:
    """Return the tail of a split archive with `count` parts; `tail` belongs to the last part."""
    if locate_part(location, 1) is None:  # the name does not match any naming scheme
        return _refuse(
            tail,
            "part-missing",
            f"the archive has {count:,} parts; name the last one NAME.zip, beside NAME.z01 and the "
            "other parts",
        )
    earlier = range(1, count)  # the numbers of all parts before the last part
    parts = list(map_ahead(partial(_stat_part, source, location, calls), earlier, PARTS_AT_ONCE))
    missing = [number for number, part in zip(earlier, parts, strict=True) if part is None]
    if missing:
        message = f"{_name_part(location, missing[0])}, part {missing[0]:,} of {count:,}"
        if len(missing) > 1:
            message += f", and {len(missing) - 1:,} more"
        return _refuse(tail, "part-missing", message)
    pins = [part.pin for part in parts if part is not None]  # mypy needs this condition
    return tail._replace(pin=_join_pins([*pins, tail.pin], named_pin=tail.pin))


def _read_pieces(
    source: Source, location: Location, calls: Calls, *, length: int, max_parts: int
) -> Tail:
    """Return the tail of an archive that was cut into pieces; `location` is the first piece."""
    pieces = [calls.run("head", lambda: source.stat(location))]
    # The range includes one number above the limit, in order to detect too many pieces.
    for part in map_ahead(
        partial(_stat_part, source, location, calls), range(2, max_parts + 2), PARTS_AT_ONCE
    ):
        if part is None:  # the preceding piece was the last one
            break
        pieces.append(part)
    pin = _join_pins([part.pin for part in pieces], named_pin=pieces[0].pin)
    archive = source.pinned(location, pin)
    data = calls.read(archive, ByteRange(max(0, pin.size - length), pin.size))
    dates = [part.modified for part in pieces if part.modified is not None]
    # A refused archive also has a tail, because its run needs an id.
    tail = Tail(data, pin, max(dates, default=None))
    if len(pieces) > max_parts:
        return _refuse(tail, "too-many-parts", f"more than {max_parts:,} parts, the limit")
    # If the archive begins like a ZIP file but has no end record, its last pieces are missing.
    beginning = calls.read(archive, ByteRange(0, min(len(LOCAL_SIGNATURE), pin.size)))
    if beginning == LOCAL_SIGNATURE and EOCD_SIGNATURE not in data:
        return _refuse(
            tail,
            "part-missing",
            f"{_name_part(location, len(pieces) + 1)}; the earlier parts do not contain the end of "
            "the archive",
        )
    return tail


def _stat_part(source: Source, location: Location, calls: Calls, number: int) -> Tail | None:
    """Return the pin of part `number` (a tail without bytes), or None if there is no such part."""
    part = locate_part(location, number)
    with suppress(NotFoundError):
        if part is not None:
            return calls.run("head", lambda: source.stat(part))
    return None


def _join_pins(pins: Sequence[Pin], named_pin: Pin) -> Pin:
    # Returns the pin of all parts. `named_pin` pins the part that the user named.
    if len(pins) == 1:  # a single piece is the whole archive
        return named_pin
    return replace(named_pin, size=sum(pin.size for pin in pins), parts=tuple(pins))


def _name_part(location: Location, number: int, *, is_last: bool = False) -> str:
    # The caller has located other parts of the archive, so `locate_part` does not return None.
    return _file_name(locate_part(location, number, is_last=is_last) or location)


@contextmanager
def blaming_parts(disks: Disks) -> Iterator[None]:
    """If members of a split archive are misplaced, report that a part has the wrong size."""
    try:
        yield
    except RejectedError as refusal:
        finding = refusal.finding
        # If a part has the wrong size, members seem to overlap or to be out of bounds.
        if not disks.is_split or finding.code not in {"overlap", "member-out-of-bounds"}:
            raise
        raise RejectedError(
            replace(
                finding,
                code="part-wrong",
                message=f"judging by the sizes of the parts, {finding.message}",
            )
        ) from None


def check_parts(
    members: Sequence[Member],
    disks: Disks,
    read: Callable[[ByteRange], bytes],
    location: Location,
) -> None:
    """Check that the first local header in each part is where the directory places it.

    The member before this header begins in an earlier part, and must not extend beyond the start of
    this header. Two local headers are read for each part in which a member begins.
    """
    if not disks.is_split:
        return
    # The position of each part's first member in `members`.
    first_positions = list(find_boundaries(members, disks))
    faults = map_ahead(
        lambda position: _find_part_fault(members, position, disks, read),
        first_positions,
        PARTS_AT_ONCE,
    )
    for position, fault in zip(first_positions, faults, strict=True):
        if fault is not None:
            disk = disks.disk_of(members[position].offset)
            # Disks are numbered from 0, parts from 1.
            name = _name_part(location, disk + 1, is_last=disk == disks.last)
            raise RejectedError(Finding("part-wrong", f"{name} {fault}"))


def _find_part_fault(
    members: Sequence[Member], position: int, disks: Disks, read: Callable[[ByteRange], bytes]
) -> str | None:
    """Return what is wrong with a part, or None if the part is correct.

    The text is the predicate of a sentence, such as "has no member at byte 0". The caller adds the
    name of the part as the subject.

    Args:
        members: all members, in the order of their offsets.
        position: the position of the first member that begins in the part.
        disks: the parts.
        read: function that returns the bytes in a range of the archive.
    """
    offset = members[position].offset
    if read(ByteRange(offset, offset + len(LOCAL_SIGNATURE))) != LOCAL_SIGNATURE:
        return f"has no member at byte {offset - disks.starts[disks.disk_of(offset)]:,}"
    if position == 0:
        return None
    previous = members[position - 1]
    # `previous.stop` is the offset of the first member in this part. If a local header does not fit
    # before this offset, the previous member is wrong, not the part.
    if previous.stop - previous.offset < LOCAL_LENGTH:
        return None
    header = read(ByteRange(previous.offset, previous.offset + LOCAL_LENGTH))
    overlap = find_data_stop(previous, header) - previous.stop
    if overlap <= 0:
        return None
    return f"overlaps the preceding member by {overlap:,} bytes"


def locate_part(location: Location, number: int, *, is_last: bool = False) -> Location | None:
    """Return the location of a part, or None if the archive's name does not determine it.

    Args:
        location: location of the archive.
        number: number of the part, from 1.
        is_last: whether this is the last part. In a split archive, the last part has the archive's
            name.
    """
    if not location.store.has_neighbours:  # an open reader
        return None
    path, question_mark, query = _split_query(location)
    piece_name = _FIRST_PIECE.search(path)
    if piece_name is not None:  # a.zip.001, a.zip.002: every piece has a number
        digits = len(piece_name["number"])
        path = f"{path[:-digits]}{number:0{digits}}"
    elif not path.lower().endswith((".zip", ".zipx")):
        return None
    elif not is_last:
        # At the end of the path, "zip" becomes "z01", and "zipx" becomes "zx01".
        path = re.sub(r"ip(x?)\Z", rf"\g<1>{number:02}", path, flags=re.IGNORECASE)
    return replace(location, key=path + question_mark + query)


def locate_parts(location: Location, pin: Pin) -> list[Location]:
    """Return the locations of the parts of an archive, in order; one of them is `location`."""
    count = len(pin.parts or (pin,))
    # An archive with a single part may have a name for which `locate_part` returns None.
    return [
        locate_part(location, number, is_last=number == count) or location
        for number in range(1, count + 1)
    ]


def make_archive_test(location: Location, pin: Pin, destination: Location) -> Callable[[str], bool]:
    """Return a function that tests whether a key refers to the archive or to one of its parts.

    A file can have several paths, because of linked folders or case-insensitive file systems. The
    function compares files, not only paths, if the archive lies below the folder `destination`.
    Other archives are safe from the members, and comparing files requires system calls.
    """
    part_keys = {part.key for part in locate_parts(location, pin)}
    if not location.store.is_local:
        return part_keys.__contains__
    folder = os.path.realpath(destination.key).rstrip("/") + "/"
    if not any(fold_key(os.path.realpath(key)).startswith(fold_key(folder)) for key in part_keys):
        return part_keys.__contains__
    # A member with the key of a part would replace the part.
    # To save system calls, `is_part` compares a file only with a part that has the same name. If a
    # key in `part_keys` leads to a symbolic link, both the link and its target count as the part.
    paths_by_name = {
        fold_key(path.name): path for key in part_keys for path in (Path(key), Path(key).resolve())
    }

    def is_part(key: str) -> bool:
        path = paths_by_name.get(fold_key(key[key.rfind("/") + 1 :]))
        if path is None:  # no part has this name
            return False
        with suppress(OSError, ValueError):  # a file is missing, or `key` contains a NUL
            # `lstat`: if the file at `key` is a symbolic link to the archive, a member would
            # replace the link, and the archive would remain.
            return key in part_keys or os.path.samestat(os.lstat(key), path.stat())
        return False

    return is_part


def advise_name(location: Location) -> str | None:
    """Return advice on which part to name, or None if `location` can name an archive.

    For example, ``a.zip.002`` is a piece, ``a.z01`` is an earlier part of ``a.zip``, and ``a.zx01``
    is an earlier part of ``a.zipx``.
    """
    name = _file_name(location)
    piece = _PIECE.search(name)
    if piece is not None and int(piece[1]) != 1:
        first_name = name[: piece.start(1)] + "1".zfill(len(piece[1]))
        return f"give its first piece as the archive: {first_name}"
    part = re.search(r"\.(?P<z>z)(?P<x>x?)[0-9]{2,5}\Z", name, re.IGNORECASE)
    if part is None:
        return None
    suffix = {"z": ".zip", "Z": ".ZIP"}[part["z"]]  # in upper case if the "Z" is
    return f"give its last part as the archive: {name[: part.start()]}{suffix}{part['x']}"


def _file_name(location: Location) -> str:
    return _split_query(location)[0].rpartition("/")[2]


def _split_query(location: Location) -> tuple[str, str, str]:
    """Return the path, the question mark and the query. Only URLs have a query."""
    if not location.store.is_url:
        return location.key, "", ""
    return location.key.partition("?")
