"""A run's own objects in the work bucket, below ``<prefix>runs/<run>/``, and all stores in S3.

Unlike the other adapters `S3RunStore` goes through `Calls` itself: a write may be many requests
of pieces that come only once, so its caller could not repeat it.
"""

from __future__ import annotations

import math
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, TypeVar

import obstore

from s3unzip.errors import NotFoundError, S3UnzipError, ServiceFaultError
from s3unzip.model import Location, Part, Pin
from s3unzip.stores.calls import Calls, Kind, LocalClock, count_request
from s3unzip.stores.factory import PartsSource, StoreConfig
from s3unzip.stores.ports import ObjectFacts, Upload
from s3unzip.stores.s3.destination import S3Destination
from s3unzip.stores.s3.errors import S3_ERRORS, Call
from s3unzip.stores.s3.session import Session, advice_for
from s3unzip.stores.s3.source import S3Archive, S3Disposal, S3Source
from s3unzip.zip import ByteRange

if TYPE_CHECKING:  # a stub
    from obstore import GetOptions

T = TypeVar("T")
PART = 16 * 1024**2  # what is gathered before a multipart upload begins, and a part of it
RETRY_SECONDS = 60.0  # one call's budget for retries
CALLS_AT_ONCE = 32
TYPES = {"json": "application/json", "jsonl": "application/jsonl", "html": "text/html"}


class S3RunStore:
    """The work store of one run; threads may share it."""

    def __init__(
        self,
        session: Session,
        bucket: str,
        prefix: str,
        store: S3Destination,
        calls: Calls | None = None,
    ) -> None:
        self._session = session
        self._bucket = bucket
        self._prefix = prefix
        self._store = store  # writes, lists and deletes below the prefix
        self._calls = calls or Calls(LocalClock(), RETRY_SECONDS, CALLS_AT_ONCE)

    def _run(self, kind: Kind, call: Callable[[], T]) -> T:
        return self._calls.run(kind, call, "work")

    def write(self, name: str, pieces: Iterable[bytes]) -> int:
        """Write an object whole or not at all; return its size in bytes."""
        key, facts = self._prefix + name, _facts_of(name)
        bodies = _gather(pieces)
        first = next(bodies, b"")
        second = next(bodies, None)
        if second is None:
            self._run("put", lambda: self._store.put(key, first, facts, if_absent=False))
            return len(first)
        upload = Upload(key, self._run("create", lambda: self._store.create_upload(key, facts)))
        parts: list[Part] = []
        try:
            for body in chain((first, second), bodies):
                sent = sum(part.size for part in parts)
                parts.append(self._part(upload, len(parts) + 1, sent, body))
            self._complete(upload, parts)
        except BaseException as error:
            self._abort(upload, error)
            raise
        return sum(part.size for part in parts)

    def create(self, name: str, body: bytes) -> None:
        """Write a small object, of all who try at once one."""
        key, facts = self._prefix + name, _facts_of(name)
        self._run("put", lambda: self._store.put(key, body, facts, if_absent=True))

    def _abort(self, upload: Upload, error: BaseException) -> None:
        """Drop the upload that `error` ended; if that fails too, `error` is still what is raised.

        The lifecycle rule of the work bucket drops what stays.
        """
        try:
            self._run("abort", lambda: self._store.abort_upload(upload))
        except S3UnzipError as trouble:
            error.add_note(f"and its upload was not aborted: {trouble}")

    def read(self, name: str, span: tuple[int, int] | None = None) -> bytes:
        """Return the object, or bytes [start, stop) of it."""
        if span is not None and span[0] >= span[1]:
            return b""
        return self._run("get", lambda: self._read(name, span)[0])

    def _read(
        self, name: str, span: tuple[int, int] | None, most: float = math.inf
    ) -> tuple[bytes, Pin]:
        """Return an object that has at most so many bytes, and its version."""
        try:
            options: GetOptions = {} if span is None else {"range": span}
            store = self._session.reader(self._bucket)
            answer = obstore.get(store, self._prefix + name, options=options)
            pin = Pin(answer.meta["size"], answer.meta["e_tag"])
            data = answer.bytes().to_bytes() if pin.size <= most else b""
        except S3_ERRORS as error:
            call = Call("GetObject", self._bucket, self._prefix + name)
            raise self._session.understand(error, call) from None
        if span is not None and len(data) != span[1] - span[0]:
            raise ServiceFaultError(f"{self._prefix}{name}: {len(data)} bytes of {span} came")
        return data, pin

    def stream(self, name: str) -> Iterator[bytes]:
        """Yield the object in pieces; a large body that breaks is read on where it broke."""
        data, pin = self._run("get", lambda: self._read(name, None, PART))
        if data or not pin.size:
            yield data
            return
        archive = S3Archive(self._session, Location("s3", self._bucket, self._prefix + name), pin)
        for piece in self._calls.stream(archive, ByteRange(0, pin.size), "work"):
            yield bytes(piece)

    def names(self, prefix: str) -> Iterator[str]:
        """Yield the names of the run's objects that begin with `prefix`, in order."""
        whole = self._prefix + prefix
        last = whole + "\U0010ffff"
        found = self._run("list", lambda: list(self._store.list_objects(whole, "", last)))
        for entry in found:
            yield entry.key.removeprefix(self._prefix)

    def delete(self, names: Sequence[str]) -> None:
        """Delete the objects; nothing happens if they are gone."""
        keys = [self._prefix + name for name in names]
        if keys:
            self._run("delete", lambda: self._store.delete(keys))

    def _part(self, upload: Upload, number: int, offset: int, body: bytes) -> Part:
        crc = zlib.crc32(body)
        return self._run("part", lambda: self._store.upload_part(upload, number, offset, body, crc))

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


class S3Stores:
    """Opens S3 locations, all through one session or two; one per process.

    Args:
        config: how S3 is reached; the run's own objects follow the work bucket's defaults.
        session: one of the destination that exists already shares its clients.
    """

    def __init__(self, config: StoreConfig, session: Session | None = None) -> None:
        there = config.at_destination()
        self.session = session or Session(there, advice=advice_for(config, destination=True))
        self._config = config
        reader = self.session if _reached(there) == _reached(config) else Session(config)
        self._source = PartsSource(S3Source(reader))
        self._disposal = S3Disposal(reader)
        self._destinations: dict[str, S3Destination] = {}
        self._lock = threading.Lock()

    def source(self, location: Location) -> PartsSource:  # noqa: ARG002 - one reads all buckets
        """Return the adapter that reads `location`."""
        return self._source

    def destination(self, location: Location) -> S3Destination:
        """Return the adapter that writes to the bucket of `location`."""
        with self._lock:
            found = self._destinations.get(location.bucket)
            if found is None:
                found = S3Destination(self.session, location.bucket, self._config)
                self._destinations[location.bucket] = found
            return found

    def disposal(self, location: Location) -> S3Disposal:  # noqa: ARG002 - one for all buckets
        """Return the adapter that deletes or tags archives."""
        return self._disposal

    def run_store(self, run: str, calls: Calls | None = None) -> S3RunStore:
        """Return the run store of one run; `calls` retries and counts what is asked of it."""
        work = self._config.work
        store = S3Destination(self.session, work.bucket)
        return S3RunStore(self.session, work.bucket, f"{work.key}runs/{run}/", store, calls)


def _reached(config: StoreConfig) -> tuple[object, ...]:
    """Return what a session depends on."""
    return (
        config.endpoint_url,
        config.region,
        config.profile,
        config.unsigned,
        config.request_payer,
    )
