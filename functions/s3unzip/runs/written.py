"""What runs wrote, by the store's own word: the ETag that it answered each PUT and Complete with.

A run writes an object only after it has compared the bytes with the archive's directory. So an
object that still has the ETag of that answer is the very one, whatever its metadata says.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

from s3unzip.model import Location, Run
from s3unzip.runs.records import RunRecords

_MD5 = re.compile(r"[0-9a-f]{32}")


class WrittenObjects:
    """The objects that some runs wrote; about 190 bytes of memory each, whatever their names.

    Later runs count: they overwrote what earlier ones wrote.
    """

    def __init__(self) -> None:
        self._known: dict[int, bytes] = {}
        self.runs: list[str] = []  # whose objects these are

    def __len__(self) -> int:
        return len(self._known)

    def add(self, key: str, size: int, crc32: int, etag: str) -> None:
        """Note one object: its length in bytes, its content's CRC-32, its ETag without quotes."""
        self._known[hash((key, size))] = crc32.to_bytes(4, "big") + _digest(etag)

    def match(self, key: str, size: int, crc32: int | None, etag: str | None) -> bool | None:
        """Say whether an object is the one that was written.

        Args:
            crc32: what its content should have; None: the archive does not tell it.
            etag: as the store lists it, without quotes.

        Returns:
            True: it is. False: another one was written. None: nobody knows of such a member.
        """
        known = self._known.get(hash((key, size)))
        if known is None or (crc32 is not None and known[:4] != crc32.to_bytes(4, "big")):
            return None
        return etag is not None and known[4:] == _digest(etag)


def read_written(runs: Iterable[RunRecords], destination: Location) -> WrittenObjects:
    """Return what runs wrote to the bucket of `destination`.

    Args:
        runs: the records of the runs, the earliest first; those to other buckets are left out.
        destination: a prefix in S3; a folder has no ETags, so nothing is read for one.
    """
    written = WrittenObjects()
    if destination.scheme != "s3":
        return written
    for records in runs:
        plan = records.find_plan()
        known = plan.run if plan is not None else records.find_report()  # a small run has no plan
        if known is None or known.destination.bucket != destination.bucket:
            continue
        has_etags = False
        for line in records.outcome_lines():
            if line.etag is not None:
                written.add(line.key, line.size, line.crc32, line.etag)
                has_etags = True
        if has_etags:
            written.runs.append(known.id if isinstance(known, Run) else known.run)
    return written


def _digest(etag: str) -> bytes:
    """Return 16 bytes for an ETag; most are an MD5 in hexadecimal digits."""
    if _MD5.fullmatch(etag):
        return bytes.fromhex(etag)
    return hashlib.blake2b(etag.encode(), digest_size=16).digest()
