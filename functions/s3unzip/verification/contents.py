"""Compares the CRC-32 of single objects, from HEAD or from their bytes, many at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from s3unzip.errors import S3UnzipError
from s3unzip.extraction.objects import read_stored
from s3unzip.stores.ports import AsksMany
from s3unzip.verification.findings import Equal
from s3unzip.verification.listing import size_difference
from s3unzip.verification.results import Difference, Kind, Witness

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from s3unzip.stores.calls import Calls
    from s3unzip.stores.ports import Destination, StoredObject
    from s3unzip.verification.findings import Expected, Findings

HANDFUL = 16  # objects that a thread takes at a time
BATCH = 256  # objects that one thread asks for at once
CONNECTIONS = 32  # requests in flight of one thread


class Look(NamedTuple):
    """What is known of an object's content."""

    stored: StoredObject
    witness: Witness  # for its CRC-32


class HeadLooker:
    """Uses HEAD: the store's own checksum, or the writer's metadata without one.

    The store's checksum covers the bytes of the object. These are the member's content only if the
    object is not a gzip file.
    """

    call: Literal["head"] = "head"  # the kind of request that counts an object

    def __init__(self, destination: Destination, witness: Witness, *, is_gzip: bool) -> None:
        self._destination = destination
        self._witness = witness  # gets the CRC-32 by HEAD
        self._is_gzip = is_gzip

    def look(self, key: str) -> Look | None:
        """Return the size and the CRC-32 of an object, None if it does not exist."""
        stored = self._destination.head(key)
        return None if stored is None else self._judge(stored)

    def look_many(self, keys: Sequence[str], at_once: int) -> Sequence[Look | None]:
        """Return sizes and CRC-32s of objects, None where only `look` can tell."""
        if not isinstance(self._destination, AsksMany):
            return [None] * len(keys)
        found = self._destination.heads(keys, at_once)
        return [None if stored is None else self._judge(stored) for stored in found]

    def _judge(self, stored: StoredObject) -> Look:
        if stored.checksum is not None and not self._is_gzip:
            return Look(stored._replace(crc32=stored.checksum), Witness.CHECKSUM)
        return Look(stored, self._witness)


class ByteLooker:
    """Reads the bytes of objects and trusts nothing else."""

    call: Literal["get"] = "get"

    def __init__(self, destination: Destination, found: Findings, *, is_gzip: bool) -> None:
        self._destination = destination
        self._found = found
        self._is_gzip = is_gzip

    def look(self, key: str) -> Look | None:
        """Return the size and the CRC-32 of an object's bytes, None if it does not exist."""
        stored = read_stored(self._destination, key, is_gzip=self._is_gzip)
        if stored is None:
            return None
        self._found.add_bytes(stored.size)
        return Look(stored, Witness.READ)

    def look_many(self, keys: Sequence[str], at_once: int) -> Sequence[Look | None]:  # noqa: ARG002 - as HeadLooker
        """Return nothing: each object has a request of its own."""
        return [None] * len(keys)


Looker: TypeAlias = HeadLooker | ByteLooker


def compare_contents(
    suspects: Sequence[Expected], looker: Looker, calls: Calls, found: Findings, threads: int
) -> None:
    """Compare the CRC-32 of objects with the directory, many at once.

    Raises:
        StorageError: the store refuses. ServiceFaultError: the store still fails after all retries.
    """
    if not suspects:
        return
    together = max(1, threads // CONNECTIONS)
    left: list[Expected] = []  # `extend` is atomic

    def compare_batch(start: int) -> None:
        some = suspects[start : start + BATCH]
        looks = looker.look_many(
            [member.key for member in some], min(calls.pace.limit, CONNECTIONS)
        )
        known = [(one, look) for one, look in zip(some, looks, strict=True) if look is not None]
        calls.count(looker.call, len(known))
        calls.pace.add_successes(len(known))
        _add(found, [_judge(member, look) for member, look in known])
        left.extend(one for one, look in zip(some, looks, strict=True) if look is None)

    def compare_some(start: int) -> None:
        judged = [
            _judge(member, calls.paced(looker.call, partial(looker.look, member.key)))
            for member in left[start : start + HANDFUL]
        ]
        _add(found, judged)

    _share(compare_batch, range(0, len(suspects), BATCH), together, calls)
    _share(compare_some, range(0, len(left), HANDFUL), threads, calls)


def _share(work: Callable[[int], None], places: Sequence[int], threads: int, calls: Calls) -> None:
    """Call `work` with each place, by so many threads."""
    coming = iter(places)  # shared: `next` on it is atomic

    def work_on() -> None:
        for place in coming:
            work(place)

    with ThreadPoolExecutor(threads, thread_name_prefix="look") as pool:
        working = [pool.submit(work_on) for _ in range(min(threads, len(places)))]
        try:
            for one in working:
                one.result()
        except S3UnzipError:
            calls.end()
            for _ in coming:  # no thread begins another
                pass
            raise


def _add(found: Findings, judged: Sequence[Difference | Equal]) -> None:
    found.add(
        [one for one in judged if isinstance(one, Difference)],
        [one for one in judged if isinstance(one, Equal)],
    )


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
