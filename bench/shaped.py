"""Stores in memory with the latencies, bandwidths and limits of a platform, behind the real ports.

The pipeline runs on them as on S3, with the same threads, rate limiter and retries. Each worker has
its own link; all workers share the destination's rate.
"""

# ruff: noqa: ARG002 - a store takes what its port takes

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from isal.isal_zlib import crc32

from s3unzip.errors import NotFoundError, ThrottledError, UsageError
from s3unzip.model import Location, Part, Pin
from s3unzip.stores.ports import ListedObject, PartLimits, StoredObject, Tail, Upload
from tests.faults.wire import Link

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from s3unzip.forecast import Latency, Platform
    from s3unzip.stores.calls import Calls
    from s3unzip.stores.ports import Buffer, Disposal, ObjectFacts
    from s3unzip.zip import ByteRange

PIECE = 1024 * 1024  # bytes of one piece of a stream
REFUSED_SECONDS = 0.010  # until a 503 is there
BURST_SECONDS = 0.1  # of its rate a prefix takes at once


class TokenBucket:
    """Accepts a number of writes a second, and a burst, and refuses more."""

    def __init__(self, rate: float, now: float) -> None:
        self._rate = rate
        self._tokens = self._max_tokens = max(1.0, rate * BURST_SECONDS)
        self._at = now

    def takes(self, now: float) -> bool:
        """Say whether a write at `now` is accepted; `now` never goes back."""
        added = (now - self._at) * self._rate
        self._tokens = min(self._max_tokens, self._tokens + added)
        self._at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


class Prefix:
    """A `TokenBucket` in real time, for threads; without a limit if the rate is infinite."""

    def __init__(self, rate: float) -> None:
        self._lock = threading.Lock()
        self._bucket = None if rate == float("inf") else TokenBucket(rate, time.monotonic())

    def ask(self) -> None:
        """Count one write.

        Raises:
            ThrottledError: the rate is used up.
        """
        if self._bucket is None:
            return
        with self._lock:
            if self._bucket.takes(time.monotonic()):
                return
        time.sleep(REFUSED_SECONDS)
        raise ThrottledError("slow down")


@dataclass
class World:
    """The state that all workers share: the archive, the work objects, the destination."""

    archive: bytes
    platform: Platform
    prefix: Prefix
    work: dict[str, bytes] = field(default_factory=dict)
    objects: dict[str, int] = field(default_factory=dict)
    parts: dict[str, dict[int, Part]] = field(default_factory=dict)


class ShapedStores:
    """The stores of one worker."""

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self._random = random.Random(seed)
        self._in = Link(world.platform.bandwidth_in)
        self._out = Link(world.platform.bandwidth_out)

    def wait(self, latency: Latency) -> None:
        """Wait as long as a request of that latency takes."""
        time.sleep(latency.p50 * self._random.lognormvariate(0.0, latency.sigma))

    def receive(self, size: int) -> None:
        """Wait for the first byte and for `size` bytes."""
        self.wait(self.world.platform.get)
        self._in.carry(size)

    def flow(self, size: int) -> None:
        """Wait for `size` more bytes of an answer."""
        self._in.carry(size)

    def send(self, size: int) -> None:
        """Wait for `size` bytes to be sent and answered."""
        self._out.carry(size)
        self.wait(self.world.platform.put)

    def source(self, location: Location) -> ShapedSource:
        """Return the archive's store."""
        return ShapedSource(self)

    def destination(self, location: Location) -> ShapedDestination:
        """Return the destination."""
        return ShapedDestination(self)

    def disposal(self, location: Location) -> Disposal:
        """Refuse: the archive is bytes in memory, which stay.

        Raises:
            UsageError: always.
        """
        raise UsageError(f"{location}: cannot be deleted, moved or tagged")

    def run_store(self, run: str, calls: Calls | None = None) -> ShapedWork:
        """Return the work store of the one run."""
        return ShapedWork(self)


class ShapedSource:
    """One archive."""

    def __init__(self, stores: ShapedStores) -> None:
        self._stores = stores
        self._raw = stores.world.archive

    def tail(self, location: Location, length: int) -> Tail:
        """Return the end of the archive."""
        data = self._raw[-length:]
        self._stores.receive(len(data))
        return Tail(data, self.head(location))

    def head(self, location: Location) -> Pin:
        """Return the archive's version."""
        return Pin(len(self._raw), '"shaped"')

    def pinned(self, location: Location, pin: Pin) -> ShapedArchive:
        """Return the reader."""
        return ShapedArchive(self._stores)


class ShapedArchive:
    """Ranges of the archive at the link's speed."""

    def __init__(self, stores: ShapedStores) -> None:
        self._stores = stores

    def read(self, want: ByteRange) -> bytes:
        """Return one range."""
        self._stores.receive(want.stop - want.start)
        return self._stores.world.archive[want.start : want.stop]

    def stream(self, want: ByteRange) -> Iterator[Buffer]:
        """Yield one range as it arrives."""
        self._stores.receive(0)
        for start in range(want.start, want.stop, PIECE):
            piece = self._stores.world.archive[start : min(start + PIECE, want.stop)]
            self._stores.flow(len(piece))
            yield piece


class ShapedDestination:
    """Keeps sizes, not bytes."""

    def __init__(self, stores: ShapedStores) -> None:
        self._stores = stores
        self._world = stores.world
        self.part_limits = PartLimits()

    def put(self, key: str, body: Buffer, facts: ObjectFacts, *, if_absent: bool) -> None:
        """Take one object."""
        self._world.prefix.ask()
        self._stores.send(len(body))
        self._world.objects[key] = len(body)

    def head(self, key: str) -> StoredObject | None:
        """Return the size of the object."""
        self._stores.receive(0)
        size = self._world.objects.get(key)
        return None if size is None else StoredObject(key, size, None)

    def list_objects(self, prefix: str, first: str, last: str) -> Iterator[ListedObject]:
        """Yield the existing objects."""
        yield from (ListedObject(*entry) for entry in sorted(self._world.objects.items()))

    def read(self, key: str) -> Iterator[bytes]:
        """Refuse: no bytes are kept."""
        raise NotFoundError(key)

    def delete(self, keys: Sequence[str]) -> None:
        """Forget objects."""
        for key in keys:
            self._world.objects.pop(key, None)

    def create_upload(self, key: str, facts: ObjectFacts) -> str:
        """Begin an upload."""
        self._world.prefix.ask()
        self._stores.send(0)
        self._world.parts[key] = {}
        return key

    def upload_part(self, upload: Upload, number: int, offset: int, body: Buffer, crc: int) -> Part:
        """Take one part."""
        self._world.prefix.ask()
        self._stores.send(len(body))
        part = Part(number, f'"{number}"', len(body), crc32(body))
        self._world.parts[upload.key][number] = part
        return part

    def copy_part(
        self, upload: Upload, number: int, offset: int, source: Location, pin: Pin, span: ByteRange
    ) -> Part:
        """Copy at the platform's rate of a copy."""
        self._world.prefix.ask()
        self._stores.send(0)
        size = span.stop - span.start
        time.sleep(size / self._world.platform.copy_rate)
        part = Part(number, f'"{number}"', size, crc32(self._world.archive[span.start : span.stop]))
        self._world.parts[upload.key][number] = part
        return part

    def complete_upload(self, upload: Upload, parts: Sequence[Part], *, if_absent: bool) -> None:
        """Make the object."""
        self._world.prefix.ask()
        self._stores.send(0)
        self._world.objects[upload.key] = sum(part.size for part in parts)

    def abort_upload(self, upload: Upload) -> None:
        """Drop the parts."""
        self._stores.send(0)
        self._world.parts.pop(upload.key, None)

    def uploads(self, prefix: str) -> Iterator[Upload]:
        """Yield nothing: every upload is completed or aborted."""
        return iter(())

    def parts(self, upload: Upload) -> Sequence[Part]:
        """Return the parts of an upload."""
        return list(self._world.parts.get(upload.key, {}).values())

    def copies_from(self, source: Location, pin: Pin) -> bool:
        """Return True."""
        return True


class ShapedWork:
    """The run's own objects."""

    def __init__(self, stores: ShapedStores) -> None:
        self._stores = stores
        self._objects = stores.world.work

    def write(self, name: str, pieces: Iterable[bytes]) -> int:
        """Write one object."""
        data = b"".join(pieces)
        self._stores.send(len(data))
        self._objects[name] = data
        return len(data)

    def read(self, name: str, span: tuple[int, int] | None = None) -> bytes:
        """Read one object.

        Raises:
            NotFoundError: there is none.
        """
        data = self._objects.get(name)
        if data is None:
            self._stores.receive(0)
            raise NotFoundError(name)
        wanted = data if span is None else data[span[0] : span[1]]
        self._stores.receive(len(wanted))
        return wanted

    def stream(self, name: str) -> Iterator[bytes]:
        """Yield one object."""
        yield self.read(name)

    def names(self, prefix: str) -> Iterator[str]:
        """Yield names in order."""
        self._stores.receive(0)
        return iter(sorted(name for name in self._objects if name.startswith(prefix)))

    def delete(self, names: Sequence[str]) -> None:
        """Delete objects."""
        for name in names:
            self._objects.pop(name, None)


class WallClock:
    """Real time, without a limit."""

    def now(self) -> float:
        """Return Unix seconds."""
        return time.time()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)

    def remaining(self) -> float:
        """Return infinity."""
        return float("inf")
