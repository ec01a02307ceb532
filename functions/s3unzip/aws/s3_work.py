"""A run's own objects in the work bucket, below ``<prefix>runs/<run>/``."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import obstore

from s3unzip.aws.faults import S3_ERRORS, Call, fault
from s3unzip.errors import ServiceFaultError
from s3unzip.pipeline.ports import ObjectFacts, Upload

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from s3unzip.aws.s3_destination import S3Destination
    from s3unzip.aws.session import Session
    from s3unzip.errors import S3UnzipError
    from s3unzip.pipeline.model import Part

PART = 16 * 1024**2  # what is gathered before a multipart upload begins, and a part of it
TYPES = {"json": "application/json", "jsonl": "application/jsonl", "html": "text/html"}


class S3Work:
    """The work store of one run; threads may share it."""

    def __init__(self, session: Session, bucket: str, prefix: str, store: S3Destination) -> None:
        self._session = session
        self._bucket = bucket
        self._prefix = prefix
        self._store = store  # writes, lists and deletes below the prefix

    def write(self, name: str, pieces: Iterable[bytes]) -> int:
        """Write an object whole or not at all; return its size in bytes."""
        facts = ObjectFacts(TYPES.get(name.rpartition(".")[2], "application/octet-stream"), {})
        key = self._prefix + name
        bodies = _gather(pieces)
        first = next(bodies, b"")
        second = next(bodies, None)
        if second is None:
            self._store.put(key, first, facts, if_absent=False)
            return len(first)
        upload = Upload(key, self._store.create_upload(key, facts))
        try:
            parts = [self._part(upload, 1, 0, first), self._part(upload, 2, len(first), second)]
            size = len(first) + len(second)
            for body in bodies:
                parts.append(self._part(upload, len(parts) + 1, size, body))
                size += len(body)
            self._store.complete_upload(upload, parts, if_absent=False)
        except BaseException:
            self._store.abort_upload(upload)
            raise
        return size

    def read(self, name: str, span: tuple[int, int] | None = None) -> bytes:
        """Return the object, or bytes [start, stop) of it.

        Raises:
            NotFoundError: there is no such object.
        """
        if span is not None and span[0] >= span[1]:
            return b""
        try:
            store = self._session.reader(self._bucket)
            if span is None:
                return obstore.get(store, self._prefix + name).bytes().to_bytes()
            answer = obstore.get(store, self._prefix + name, options={"range": span})
            data = answer.bytes().to_bytes()
        except S3_ERRORS as error:
            raise self._fault(error, name) from None
        if len(data) != span[1] - span[0]:
            raise ServiceFaultError(f"{self._call(name)}: {len(data)} bytes of {span} came")
        return data

    def stream(self, name: str) -> Iterator[bytes]:
        """Yield the object in pieces."""
        for piece in self._store.read(self._prefix + name):
            yield bytes(piece)

    def names(self, prefix: str) -> Iterator[str]:
        """Yield the names of the run's objects that begin with `prefix`, in order."""
        whole = self._prefix + prefix
        for key, _ in self._store.sizes(whole, "", whole + "\U0010ffff"):
            yield key.removeprefix(self._prefix)

    def delete(self, names: Sequence[str]) -> None:
        """Delete the objects; nothing happens if they are gone."""
        self._store.delete([self._prefix + name for name in names])

    def _part(self, upload: Upload, number: int, offset: int, body: bytes) -> Part:
        return self._store.upload_part(upload, number, offset, body, zlib.crc32(body))

    def _call(self, name: str) -> Call:
        return Call("GetObject", self._bucket, self._prefix + name)

    def _fault(self, error: Exception, name: str) -> S3UnzipError:
        found = fault(error, self._call(name))
        self._session.relocate(self._bucket, found)
        return found


def _gather(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the same bytes in bodies of at least `PART` bytes, the last one excepted."""
    held: list[bytes] = []
    size = 0
    for piece in pieces:
        held.append(piece)
        size += len(piece)
        if size >= PART:
            yield b"".join(held)
            held, size = [], 0
    if size:
        yield b"".join(held)
