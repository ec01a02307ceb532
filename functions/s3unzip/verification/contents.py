"""Compares the CRC-32 of single objects, from HEAD or from their bytes, many at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from s3unzip.errors import NotFoundError, S3UnzipError
from s3unzip.objects.stored import GzipCrc, PlainCrc
from s3unzip.stores.ports import StoredObject
from s3unzip.verification.findings import Equal
from s3unzip.verification.listing import size_difference
from s3unzip.verification.results import Difference, Kind, Witness

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s3unzip.stores.calls import Calls
    from s3unzip.stores.ports import Destination
    from s3unzip.verification.findings import Expected, Findings

HANDFUL = 16  # objects that a thread takes at a time


class Look(NamedTuple):
    """What is known of an object's content."""

    stored: StoredObject
    witness: Witness  # for its CRC-32


class Looker(Protocol):
    """A way to look at one object."""

    @property
    def call(self) -> Literal["head", "get"]:
        """The kind of request that counts it."""
        ...

    def look(self, key: str) -> Look | None:
        """Look at one object with one request; None if it does not exist."""
        ...


class HeadLooker:
    """Uses HEAD: the store's own checksum, or the writer's metadata without one.

    The store's checksum covers the bytes of the object. These are the member's content only if the
    object is not a gzip file.
    """

    call: Literal["head", "get"] = "head"

    def __init__(self, destination: Destination, witness: Witness, *, is_gzip: bool) -> None:
        self._destination = destination
        self._witness = witness  # gets the CRC-32 by HEAD
        self._is_gzip = is_gzip

    def look(self, key: str) -> Look | None:
        """Return the size and the CRC-32 of an object, None if it does not exist."""
        stored = self._destination.head(key)
        if stored is None:
            return None
        if stored.checksum is not None and not self._is_gzip:
            return Look(stored._replace(crc32=stored.checksum), Witness.CHECKSUM)
        return Look(stored, self._witness)


class ByteLooker:
    """Reads the bytes of objects and trusts nothing else."""

    call: Literal["head", "get"] = "get"

    def __init__(self, destination: Destination, found: Findings, *, is_gzip: bool) -> None:
        self._destination = destination
        self._found = found
        self._is_gzip = is_gzip

    def look(self, key: str) -> Look | None:
        """Return the size and the CRC-32 of an object's bytes, None if it does not exist."""
        size = 0
        content = GzipCrc() if self._is_gzip else PlainCrc()
        try:
            for piece in self._destination.read(key):
                size += len(piece)
                content.feed(piece)
        except NotFoundError:
            return None
        self._found.add_bytes(size)
        return Look(StoredObject(key, size, content.crc32), Witness.READ)


def compare_contents(
    suspects: Sequence[Expected], looker: Looker, calls: Calls, found: Findings, threads: int
) -> None:
    """Compare the CRC-32 of objects with the directory, many at once.

    Raises:
        StorageError: the store refuses. ServiceFaultError: the store still fails after all retries.
    """
    if not suspects:
        return
    starts = iter(range(0, len(suspects), HANDFUL))  # shared: `next` on it is atomic

    def compare_some() -> None:
        for start in starts:
            judged = [
                _judge(member, calls.paced(looker.call, partial(looker.look, member.key)))
                for member in suspects[start : start + HANDFUL]
            ]
            found.add(
                [one for one in judged if isinstance(one, Difference)],
                [one for one in judged if isinstance(one, Equal)],
            )

    with ThreadPoolExecutor(threads, thread_name_prefix="look") as pool:
        working = [pool.submit(compare_some) for _ in range(min(threads, len(suspects)))]
        try:
            for one in working:
                one.result()
        except S3UnzipError:
            calls.end()
            for _ in starts:  # no thread begins another
                pass
            raise


def _judge(member: Expected, look: Look | None) -> Difference | Equal:
    if look is None or look.stored.size != member.size:  # changed after the listing
        return size_difference(member, None if look is None else look.stored.size)
    if member.crc32 is None:
        return Equal(member.key, Witness.SIZE)
    expected = f"{member.crc32:08x}"
    if look.stored.crc32 is None:
        return Difference(member.key, Kind.NO_CRC, expected)
    if look.stored.crc32 != member.crc32:
        return Difference(member.key, Kind.CRC, expected, f"{look.stored.crc32:08x}")
    return Equal(member.key, look.witness)
