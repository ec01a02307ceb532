"""A run's own objects, below ``<home>runs/<run>/``, in whatever store takes members.

Unlike the adapters it goes through `Calls` itself: a write may be many requests of pieces that come
only once, so its caller could not repeat it.
"""

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import TypeVar

from msgspec.structs import replace

from s3unzip.errors import NotFoundError, S3UnzipError, ServiceFaultError
from s3unzip.model import Location, Part
from s3unzip.stores.calls import Calls, Kind, count_request
from s3unzip.stores.ports import Destination, ObjectFacts, Source, Upload
from s3unzip.zip import ByteRange

T = TypeVar("T")
PART = 16 * 1024**2  # what is gathered before a multipart upload begins, and a part of it
TYPES = {"json": "application/json", "jsonl": "application/jsonl", "html": "text/html"}


class ObjectRunStore:
    """The work store of one run; threads may share it.

    Args:
        home: every name begins with its key.
        source: reads what `store` has written.
    """

    def __init__(self, home: Location, source: Source, store: Destination, calls: Calls) -> None:
        self._home, self._source, self._store, self._calls = home, source, store, calls

    def _run(self, kind: Kind, call: Callable[[], T]) -> T:
        return self._calls.run(kind, call, "work")

    def write(self, name: str, pieces: Iterable[bytes]) -> int:
        """Write an object whole or not at all; return its size in bytes."""
        key, facts = self._home.key + name, _facts_of(name)
        bodies = _gather(pieces)
        first, second = next(bodies, b""), next(bodies, None)
        if second is None:
            self._run("put", lambda: self._store.put(key, first, facts, if_absent=False))
            return len(first)
        upload = Upload(key, self._run("create", lambda: self._store.create_upload(key, facts)))
        parts: list[Part] = []
        try:
            for body in chain((first, second), bodies):
                where = upload, len(parts) + 1, sum(part.size for part in parts)
                add = partial(self._store.upload_part, *where, body, zlib.crc32(body))
                parts.append(self._run("part", add))
            self._complete(upload, parts)
        except BaseException as error:
            try:
                self._run("abort", lambda: self._store.abort_upload(upload))
            except S3UnzipError as trouble:  # the lifecycle rule of the bucket drops what stays
                error.add_note(f"and its upload was not aborted: {trouble}")
            raise
        return sum(part.size for part in parts)

    def create(self, name: str, body: bytes) -> None:
        """Write a small object, of all who try at once one."""
        key, facts = self._home.key + name, _facts_of(name)
        self._run("put", lambda: self._store.put(key, body, facts, if_absent=True))

    def read(self, name: str, span: tuple[int, int] | None = None) -> bytes:
        """Return the object, or bytes [start, stop) of it."""
        if span is not None and span[0] >= span[1]:
            return b""
        key = self._home.key + name
        data = self._run("get", lambda: b"".join(self._store.read(key, span)))
        if span is not None and len(data) != span[1] - span[0]:
            raise ServiceFaultError(f"{key}: {len(data)} bytes of {span} came")
        return data

    def stream(self, name: str) -> Iterator[bytes]:
        """Yield the object in pieces; a large body that breaks is read on where it broke."""
        where = replace(self._home, key=self._home.key + name)
        tail = self._run("get", lambda: self._source.tail(where, PART))
        before = ByteRange(0, tail.pin.size - len(tail.data))
        # Its version needs no right of its own: the ETag pins it.
        archive = self._source.pinned(where, replace(tail.pin, version_id=None))
        for piece in self._calls.stream(archive, before, "work"):
            yield bytes(piece)
        yield tail.data

    def names(self, prefix: str) -> Iterator[str]:
        """Yield the names of the run's objects that begin with `prefix`, in order."""
        whole = self._home.key + prefix
        last = whole + "\U0010ffff"
        found = self._run("list", lambda: list(self._store.list_objects(whole, "", last)))
        for entry in found:
            yield entry.key.removeprefix(self._home.key)

    def delete(self, names: Sequence[str]) -> None:
        """Delete the objects; nothing happens if they are gone."""
        keys = [self._home.key + name for name in names]
        if keys:
            self._run("delete", lambda: self._store.delete(keys))

    def _complete(self, upload: Upload, parts: Sequence[Part]) -> None:
        """Complete; where the answer to an earlier try was lost, the object's size tells."""
        attempts = 0
        size = sum(part.size for part in parts)

        def attempt() -> None:
            nonlocal attempts
            attempts += 1
            try:
                self._store.complete_upload(upload, parts, if_absent=False)
            except NotFoundError:
                if attempts == 1:
                    raise
                count_request("head")
                found = self._store.head(upload.key)
                if found is None or found.size != size:
                    raise

        self._run("complete", attempt)


def _facts_of(name: str) -> ObjectFacts:
    return ObjectFacts(TYPES.get(name.rpartition(".")[2], "application/octet-stream"), {})


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
