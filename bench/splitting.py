"""Splitting one deflated member over workers whose bandwidth is capped.

Each worker is a process with its own link in each direction: a limiter around the ports. It reads
from a file and writes to a folder, so that no server uses the cores. The cap is so low that two
cores do not limit sixteen workers. All sizes are scaled down together: a segment is a 48th of the
member, with about as many reads and parts as a segment at the defaults.

``S3UNZIP_BENCH_SPLIT`` (MiB of the member), ``S3UNZIP_BENCH_WORKERS`` (numbers
with commas between) and ``S3UNZIP_BENCH_RATE`` (MiB a second) change the
measurement. The one stream is of a member of an eighth, because its link holds it
to one rate from end to end; speed-ups compare bytes a second.
"""

import os
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from bench.archives import ArchiveFile, Content, deflate_whole, inflate_once, log_lines, mixed_files
from bench.measure import print_figure, print_step
from s3unzip.context import Context, Progress
from s3unzip.deflate import (
    Segmentation,
    inflate_segment,
    link_segments,
    locate,
    scan_segment,
)
from s3unzip.local.machine import Machine
from s3unzip.local.workers import Workers
from s3unzip.model import Location, Part, Pin, Request
from s3unzip.settings import MIB, Tuning
from s3unzip.stores import Stores
from s3unzip.stores.archives import Source
from s3unzip.stores.config import StoreConfig
from s3unzip.stores.folder import FolderDestination
from s3unzip.stores.open import OpenedStores
from s3unzip.stores.ports import (
    AskForKeys,
    Buffer,
    Clock,
    ObjectFacts,
    Tail,
    Upload,
)
from s3unzip.zip import ByteRange

KINDS = ("mixed", "log")
WORKERS = tuple(int(n) for n in os.environ.get("S3UNZIP_BENCH_WORKERS", "4,16").split(","))
SEGMENTS = 48  # more than workers, because the uncompressed sizes of segments differ by a factor
SIZE = int(os.environ.get("S3UNZIP_BENCH_SPLIT", "1024")) * MIB  # bytes of the member
RATE = float(os.environ.get("S3UNZIP_BENCH_RATE", "5.12")) * MIB  # bytes a second, each way
STREAM_SIZE = SIZE // 8  # of the member that is one stream
CPU_SIZE = 160 * MIB  # size of the member whose CPU is measured
CPU_SEGMENTS = 3  # segments of about the default size
NEVER = 1 << 50


class Link:
    """A wire of `rate` bytes a second; who comes later waits for who came before."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._lock = threading.Lock()
        self._free = 0.0

    def carry(self, size: int) -> None:
        with self._lock:
            self._free = max(self._free, time.monotonic()) + size / self._rate
            until = self._free
        time.sleep(max(0.0, until - time.monotonic()))


class LimitedSource(Source):
    """Files behind a link."""

    def __init__(self, source: Source, link: Link) -> None:
        self._source = source
        self._link = link

    def tail(self, location: Location, length: int) -> Tail:
        return self._source.tail(location, length)

    def stat(self, location: Location) -> Tail:
        return self._source.stat(location)

    def stream(self, location: Location, pin: Pin, want: ByteRange) -> Iterator[Buffer]:
        for piece in self._source.stream(location, pin, want):
            self._link.carry(len(piece))
            yield piece


class LimitedFolder(FolderDestination):
    """A folder behind a link."""

    def __init__(self, root: str, link: Link) -> None:
        super().__init__(root)
        self._link = link

    def put(self, key: str, body: Buffer, facts: ObjectFacts, *, if_absent: bool) -> None:
        self._link.carry(len(body))
        super().put(key, body, facts, if_absent=if_absent)

    def upload_part(
        self, upload: Upload, number: int, offset: int, body: Buffer, crc32: int
    ) -> Part:
        self._link.carry(len(body))
        return super().upload_part(upload, number, offset, body, crc32)


class LimitedStores:
    """The stores of one worker."""

    def __init__(self, stores: Stores, rate: float) -> None:
        self._stores = stores
        self.end_startup = stores.end_startup
        self.run_store = stores.run_store  # a run's own objects are small, and not limited
        self._in, self._out = Link(rate), Link(rate)
        self._folders: dict[str, LimitedFolder] = {}
        self._lock = threading.Lock()

    def source(self, location: Location) -> LimitedSource:
        return LimitedSource(self._stores.source(location), self._in)

    def destination(self, location: Location) -> LimitedFolder:
        with self._lock:
            if location.key not in self._folders:
                self._folders[location.key] = LimitedFolder(location.key, self._out)
            return self._folders[location.key]


@dataclass(frozen=True, slots=True)
class Maker:
    """Makes the context of a worker process."""

    config: StoreConfig
    tuning: Tuning
    rate: float

    def __call__(
        self, clock: Clock, progress: Progress | None = None, ask: AskForKeys | None = None
    ) -> Context:
        stores = OpenedStores(self.config, ask=ask)
        return Context(
            LimitedStores(stores, self.rate), clock, tuning=self.tuning, progress=progress
        )


@dataclass(slots=True)
class Case:
    """One member, and the folder of its extraction."""

    name: str
    content: Content
    folder: str

    @property
    def tuning(self) -> Tuning:
        """Settings with the segments of this bench, and reads and parts that fit them."""
        step = -(-self.content.compressed_size // SEGMENTS)
        return Tuning(
            split_from=1,
            segment_bytes=step,
            part_bytes=max(MIB, self.content.size // SEGMENTS // 12),
            read_piece=max(MIB // 2, step // 8),
        )

    def seconds(self, workers: int | None) -> float:
        tuning = self.tuning if workers else replace(self.tuning, split_from=NEVER)
        home = tempfile.mkdtemp(dir=self.folder)
        maker = Maker(StoreConfig(Location("file", "", f"{home}/work/")), tuning, RATE)
        request = Request(
            Location("file", "", f"{self.folder}/{self.name}.zip"),
            Location("file", "", f"{home}/out/"),
        )
        pool = Workers(workers or 1, maker(Clock()), maker)
        with Machine(maker(Clock()), maker.config, pool) as machine:
            report = machine.run(request)
        assert report.verdict == "COMPLETED", report
        seconds = report.finished - report.started - report.plan_seconds
        written = Path(home, "out", self.name, "large.bin")
        assert written.stat().st_size == self.content.size
        written.unlink()
        return seconds


def measure_splitting(kinds: Sequence[str] = KINDS) -> None:
    """Print the speed-ups over one stream, and the CPU cost of splitting."""
    with tempfile.TemporaryDirectory(prefix="s3unzip-bench-") as folder:
        members = {"mixed": mixed_files, "log": log_lines}
        _make_case("start", mixed_files(32 * MIB), folder).seconds(2)  # starts the fork server
        for name in kinds:
            print_step(f"{name}: making a member of {SIZE / MIB:.0f} MiB, and one of an eighth")
            split = _make_case(name, members[name](SIZE), folder)
            _print_speedups(split, _make_case(f"{name}-stream", members[name](STREAM_SIZE), folder))
    _print_cpu({name: members[name](CPU_SIZE) for name in kinds})


def _make_case(name: str, member: bytes, folder: str) -> Case:
    case = Case(name, deflate_whole(member), folder)
    with ArchiveFile(Path(folder, f"{name}.zip")) as archive:
        archive.add("large.bin", case.content)
    ratio = case.content.size / case.content.compressed_size
    print(f"{name}: {case.content.size / MIB:.0f} MiB, {ratio:.1f}:1", flush=True)
    return case


def _print_speedups(split: Case, stream: Case) -> None:
    seconds = stream.content.size / RATE
    print_step(f"{split.name}: one stream at {RATE / MIB:.2f} MiB/s, about {seconds:.0f} s")
    rate = stream.content.size / stream.seconds(None)
    print(f"{split.name}: one stream {rate / MIB:.2f} MiB/s", flush=True)
    for workers in WORKERS:
        print_step(f"{split.name}: split over {workers} workers")
        speedup = split.content.size / split.seconds(workers) / rate
        print_figure(f"split.speedup.{split.name}.{workers}", speedup, "x")


def _print_cpu(members: dict[str, bytes]) -> None:
    print_step(f"CPU of splitting members of {CPU_SIZE / MIB:.0f} MiB")
    ratios, searches = [], []
    for name, member in members.items():
        content = deflate_whole(member)
        data = content.chunks[0]
        layout = Segmentation(len(data), -(-len(data) // SEGMENTS))
        before = time.process_time()
        bits = [locate(layout, segment, partial(_read, data)) for segment in range(1, SEGMENTS)]
        searches.append((time.process_time() - before) / (SEGMENTS - 1))
        assert any(bits)
        before = time.process_time()
        assert inflate_once(content) == len(member)
        one = time.process_time() - before
        before = time.process_time()
        size = _split_once(data)
        split = time.process_time() - before
        assert size == content.size
        ratios.append(split / one)
        print(f"{name}: split {split:.2f} CPU s, one inflate {one:.2f} CPU s", flush=True)
    print_figure("split.cpu_vs_one_inflate", max(ratios), "ratio")
    print_figure("split.boundary_cpu_s", max(searches), "s")


def _split_once(data: bytes) -> int:
    layout = Segmentation(len(data), -(-len(data) // CPU_SEGMENTS))
    read = partial(_read, data)
    scans = (scan_segment(layout, segment, read) for segment in range(layout.count))
    found = link_segments((scan for scan in scans if scan is not None), layout.size)
    return sum(
        len(piece)
        for segment in found
        for piece in inflate_segment(segment, _read(data, *segment.span))
    )


def _read(data: bytes, start: int, stop: int) -> list[bytes]:
    return [data[start:stop]]
