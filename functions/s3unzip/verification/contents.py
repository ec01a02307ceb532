"""What HEAD or the bytes tell of single objects, many at once."""

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
    """What was found of an object's content."""

    stored: StoredObject
    witness: Witness  # for its CRC-32


class Looker(Protocol):
    """A way to look at one object."""

    @property
    def call(self) -> Literal["head", "get"]:
        """How it is counted."""
        ...

    def look(self, key: str) -> Look | None:
        """Return what is there, None if nothing is; one request."""
        ...


class HeadLooker:
    """Asks by HEAD: for the store's own checksum, and else for what the writer noted.

    A checksum is of the bytes of the object, which is only then the member's
    content when it was not written as gzip.
    """

    call: Literal["head", "get"] = "head"

    def __init__(self, destination: Destination, witness: Witness, *, is_gzip: bool) -> None:
        self._destination = destination
        self._witness = witness  # for the CRC-32 that comes with a HEAD
        self._is_gzip = is_gzip

    def look(self, key: str) -> Look | None:
        """Return the size and the CRC-32 of an object, None if it is gone."""
        stored = self._destination.head(key)
        if stored is None:
            return None
        if stored.checksum is not None and not self._is_gzip:
            return Look(stored._replace(crc32=stored.checksum), Witness.CHECKSUM)
        return Look(stored, self._witness)


class ByteLooker:
    """Reads objects, and trusts nothing else."""

    call: Literal["head", "get"] = "get"

    def __init__(self, destination: Destination, found: Findings, *, is_gzip: bool) -> None:
        self._destination = destination
        self._found = found
        self._is_gzip = is_gzip

    def look(self, key: str) -> Look | None:
        """Return the size and the CRC-32 of an object's bytes, None if it is gone."""
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
        StorageError: the store refused.
        ServiceFaultError: the store failed beyond the retries.
    """
    if not suspects:
        return
    starts = iter(range(0, len(suspects), HANDFUL))  # shared: `next` of it is one step

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
            for _ in starts:  # nobody begins another
                pass
            raise


def _judge(member: Expected, look: Look | None) -> Difference | Equal:
    if look is None or look.stored.size != member.size:  # changed since it was listed
        return size_difference(member, None if look is None else look.stored.size)
    if member.crc32 is None:
        return Equal(member.key, Witness.SIZE)
    expected = f"{member.crc32:08x}"
    if look.stored.crc32 is None:
        return Difference(member.key, Kind.NO_CRC, expected)
    if look.stored.crc32 != member.crc32:
        return Difference(member.key, Kind.CRC, expected, f"{look.stored.crc32:08x}")
    return Equal(member.key, look.witness)
