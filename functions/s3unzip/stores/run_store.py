"""Run stores, which keep the objects of one run below ``runs/<run id>/`` in a store, or in memory.

The objects of a run are its plan, its members, its outcomes and its report. The name of an object
is relative to ``runs/<run id>/``.
"""

import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import TypeAlias, TypeVar

from msgspec.structs import replace

from s3unzip.errors import (
    ConflictError,
    NotFoundError,
    S3UnzipError,
    StorageError,
    UnreadableRecordError,
)
from s3unzip.model import Location, Part
from s3unzip.stores.archives import Source, read_end
from s3unzip.stores.calls import Calls, count_request
from s3unzip.stores.listing import PAGE_KEYS, list_pages
from s3unzip.stores.ports import Destination, Kind, ObjectFacts, Upload, make_completion
from s3unzip.zip import ByteRange

T = TypeVar("T")
PART = 16 * 1024**2  # size of a part, in bytes; a smaller object is written by one PUT
TYPES = {"json": "application/json", "jsonl": "application/jsonl", "html": "text/html"}


class ObjectRunStore:
    """The objects of one run in a bucket or a folder; threads may share a run store.

    Unlike the adapters, this class retries requests itself. A write may need many requests, and its
    pieces can be read only once, so a caller could not repeat the write.

    Args:
        home: location of the run. The key of an object is the key of `home` plus the object's name.
        source: source that reads the objects written by `store`.
        store: destination of the objects.
        calls: `Calls` object that retries and counts the requests.
    """

    def __init__(self, home: Location, source: Source, store: Destination, calls: Calls) -> None:
        self._home = home
        self._source = source
        self._store = store
        self._calls = calls

    def _send(self, kind: Kind, call: Callable[[], T]) -> T:
        return self._calls.run(kind, call, "work")

    def write(self, name: str, pieces: Iterable[bytes]) -> int:
        """Write an object either whole or not at all; return its size in bytes."""
        bodies = _gather(pieces)
        body = next(bodies, b"")
        if len(body) >= PART:  # a smaller body is the whole object
            return self._upload(name, chain([body], bodies))
        self._put(name, body, if_absent=False)
        return len(body)

    def _put(self, name: str, body: bytes, *, if_absent: bool) -> None:
        self._send(
            "put",
            lambda: self._store.put(
                self._home.key + name, body, _facts_of(name), if_absent=if_absent
            ),
        )

    def _upload(self, name: str, bodies: Iterable[bytes]) -> int:
        """Write a large object in parts; return its size in bytes."""
        key = self._home.key + name
        upload = Upload(
            key, self._send("create", lambda: self._store.create_upload(key, _facts_of(name)))
        )
        parts: list[Part] = []
        size = 0
        try:
            for number, body in enumerate(bodies, 1):
                upload_part = partial(
                    self._store.upload_part,
                    upload,
                    number=number,
                    offset=size,
                    body=body,
                    crc32=zlib.crc32(body),
                )
                parts.append(self._send("part", upload_part))
                size += len(body)
            self._complete(upload, parts, size)
        except BaseException as error:
            try:
                self._send("abort", lambda: self._store.abort_upload(upload))
            except S3UnzipError as trouble:  # a lifecycle rule of the bucket deletes the parts
                error.add_note(f"the upload of {key} was not aborted: {trouble}")
            raise
        return size

    def create(self, name: str, body: bytes) -> None:
        """Write a small object, or raise `ConflictError` if the object exists.

        If several writers call this method at once, at most one of them succeeds. If the response
        to the successful writer is lost, this writer tries again, finds its own object, and gets a
        `ConflictError`.
        """
        self._put(name, body, if_absent=True)

    def replace(self, name: str, old: bytes, new: bytes) -> None:
        """Write the bytes `new` to a small object that contains the bytes `old`.

        Raises `ConflictError` if the object is missing or contains other bytes.
        """
        key = self._home.key + name
        # If the object changes after this HEAD, its ETag changes, and S3 refuses the PUT.
        stored = self._send("head", lambda: self._store.head(key))
        try:
            if stored is None or self.read(name) != old:
                raise ConflictError(f"{key}: the object has changed")
            self._send(
                "put", partial(self._store.replace, key, new, _facts_of(name), etag=stored.etag)
            )
        except NotFoundError as error:  # the object was deleted after the HEAD
            raise ConflictError(f"{key}: the object is gone") from error

    def read(self, name: str, span: tuple[int, int] | None = None) -> bytes:
        """Return the object, or only bytes [start, stop).

        Raises `NotFoundError` if the object is missing, and `UnreadableRecordError` if the object
        ends before `stop`.
        """
        if span is not None and span[0] >= span[1]:  # HTTP cannot express empty ranges
            return b""
        key = self._home.key + name
        try:
            data = self._send("get", lambda: b"".join(self._store.read(key, span)))
        except StorageError as error:
            # A missing permission, bucket or object raises a subclass of `StorageError`. A plain
            # `StorageError` usually means that the object ends before the range begins (S3: 416).
            if span is None or type(error) is not StorageError:
                raise
            raise UnreadableRecordError(str(error)) from error
        if span is not None and len(data) != span[1] - span[0]:
            raise UnreadableRecordError(
                f"{key}: received only {len(data):,} bytes of the range {span[0]:,} to {span[1]:,}"
            )
        return data

    def stream(self, name: str) -> Iterator[bytes]:
        """Yield the object in pieces; if a large body is cut short, request the rest of it."""
        location = replace(self._home, key=self._home.key + name)
        # One request returns the version and the last `PART` bytes, which are the whole record in
        # most cases.
        tail = read_end(self._source, location, self._calls, PART, store="work")
        # Reading by version id requires an additional permission, and the ETag is enough to pin the
        # object.
        record = self._source.pinned(location, replace(tail.pin, version_id=None))
        yield from map(
            bytes,
            self._calls.stream(record, ByteRange(0, tail.pin.size - len(tail.data)), "work"),
        )
        yield tail.data

    def names(self, prefix: str) -> Iterator[str]:
        """Yield, in order, the names of the run's objects that begin with `prefix`."""
        home = self._home.key
        yield from sorted(
            listed.key.removeprefix(home)
            for page in list_pages(self._store, home + prefix, partial(self._send, "list"))
            for listed in page.objects
        )

    def delete(self, names: Sequence[str]) -> None:
        """Delete the objects; ignore those that no longer exist."""
        keys = [self._home.key + name for name in names]
        for start in range(0, len(keys), PAGE_KEYS):
            self._send("delete", partial(self._store.delete, keys[start : start + PAGE_KEYS]))

    def _complete(self, upload: Upload, parts: Sequence[Part], size: int) -> None:
        """Complete an upload of `size` bytes.

        If a response is lost, the upload is complete if the object has `size` bytes.
        """

        def is_written() -> bool:
            count_request("head")
            stored = self._store.head(upload.key)
            return stored is not None and stored.size == size

        complete = make_completion(self._store, upload, parts, is_written, if_absent=False)
        self._send("complete", complete)


class MemoryRunStore:
    """A run store with the interface of `ObjectRunStore`, in memory; threads may share it."""

    def __init__(self, objects: dict[str, bytes] | None = None) -> None:
        self.objects = {} if objects is None else objects  # objects by name
        self._lock = threading.Lock()

    def write(self, name: str, pieces: Iterable[bytes]) -> int:
        data = self.objects[name] = b"".join(pieces)
        return len(data)

    def create(self, name: str, body: bytes) -> None:
        with self._lock:
            if name in self.objects:
                raise ConflictError(f"{name}: the object exists")
            self.objects[name] = body

    def replace(self, name: str, old: bytes, new: bytes) -> None:
        with self._lock:
            if self.objects.get(name) != old:
                raise ConflictError(f"{name}: the object has changed")
            self.objects[name] = new

    def read(self, name: str, span: tuple[int, int] | None = None) -> bytes:
        data = self.objects.get(name)
        if data is None:
            raise NotFoundError(f"{name}: no such object")
        if span is None:
            return data
        start, stop = span
        if stop > len(data) and start < stop:  # an empty range is valid at any offset
            raise UnreadableRecordError(f"{name}: the object ends before byte {stop:,}")
        return data[start:stop]

    def stream(self, name: str) -> Iterator[bytes]:
        yield self.read(name)

    def names(self, prefix: str) -> Iterator[str]:
        yield from (name for name in sorted(self.objects) if name.startswith(prefix))

    def delete(self, names: Sequence[str]) -> None:
        for name in names:
            self.objects.pop(name, None)


RunStore: TypeAlias = ObjectRunStore | MemoryRunStore


def _facts_of(name: str) -> ObjectFacts:
    return ObjectFacts(TYPES.get(name.rpartition(".")[2], "application/octet-stream"), {})


def _gather(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Join `pieces` into bodies of at least `PART` bytes; the last body may be smaller."""
    body = bytearray()
    for data in pieces:
        body += data
        if len(body) >= PART:
            yield bytes(body)
            body.clear()
    if body:
        yield bytes(body)
