"""Workers that are killed or whose time is over, and what macOS writes above 4 GiB."""

import random
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from msgspec.structs import replace

from s3unzip import settings
from s3unzip.api import verification
from s3unzip.extraction.task import run_task
from s3unzip.model import Location, OnConflict, Options, Part, Pin, Report, Request, TaskKind
from s3unzip.settling.loop import KnownArchive, StepResult, begin_run, settle
from s3unzip.stores.archives import Source
from s3unzip.stores.ports import Buffer, StoredObject, Tail, Upload
from s3unzip.zip import ByteRange
from tests.support import memory_server, processes, zips
from tests.support.mac_zips import GIB, WRAP, MacFile, Sparse, build_mac, crc_of_zeros, deflated
from tests.support.memory import (
    KEY,
    LIMITS,
    MODIFIED,
    OUT,
    TINY,
    WHOLE,
    ManualClock,
    MemoryBucket,
    MemoryStores,
    Stored,
    World,
)

FREE = {
    "bytes_read",
    "keeps_metadata",
    "release",
    "part_limits",
    "copies_from",
    "disposal",
}  # what makes no request


class KilledError(BaseException):
    """The worker is gone: no handler of the pipeline may take it for a fault."""


@dataclass(eq=False)
class Lifetime:
    """So many calls, and no more.

    `answered` is whether the last call takes effect: a worker can be killed
    before its request is out, or before the answer is in.
    """

    most: float = float("inf")
    answered: bool = False
    calls: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def spend(self) -> bool:
        """Count one call; say whether the worker dies after it has taken effect."""
        with self._lock:
            self.calls += 1
            if self.calls < self.most:
                return False
            if self.calls == self.most and self.answered:
                return True
        raise KilledError


@dataclass(eq=False)
class Dying:
    """Stores, or an adapter of them, each of whose requests spends a part of a lifetime."""

    _inner: object
    _life: Lifetime

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name in FREE:
            return found
        if name in {"source", "destination", "run_store", "pinned"}:
            return lambda *given: Dying(found(*given), self._life)

        def request(*given: Any, **more: Any) -> Any:
            dies = self._life.spend()
            value = found(*given, **more)
            if dies:
                raise KilledError
            return value

        return request


@dataclass(frozen=True, slots=True)
class Case:
    """An archive whose run is of one kind of task."""

    entry: zips.Entry
    tuning: settings.Tuning
    stride: int = 1  # of the calls at which the worker is killed

    @property
    def archive(self) -> bytes:
        return zips.build(self.entry)


STORED = random.Random(5).randbytes(60_000)
CASES = {
    "stream": Case(zips.Entry("m", zips.log_lines(90_000), zips.DEFLATE), WHOLE),
    "copy": Case(zips.Entry("m", STORED), WHOLE),
    "copies": Case(zips.Entry("m", STORED), replace(WHOLE, copy_task_bytes=25_000)),
    "segments": Case(
        zips.Entry("m", zips.log_lines(400_000), zips.DEFLATE),
        replace(TINY, read_piece=1 << 20),
        stride=13,
    ),
}


def _planned(case: Case, options: Options) -> tuple[World, StepResult]:
    world = World(case.tuning)
    return world, begin_run(world.request(case.archive, options), world.context)


def lifetimes(case: Case, options: Options) -> Iterator[Lifetime]:
    """Yield the lives that end at each call that a run makes."""
    world, step = _planned(case, options)
    whole = Lifetime()
    world.stores = cast(Any, Dying(world.buckets, whole))
    world.assert_clean(world.finish(step), m=case.entry.content)
    for call in range(1, whole.calls + 1, case.stride):
        yield Lifetime(call)
        yield Lifetime(call, answered=True)


@pytest.mark.parametrize("rule", [OnConflict.OVERWRITE, OnConflict.NEVER])
@pytest.mark.parametrize("kind", sorted(CASES))
def test_a_killed_run_is_finished_by_the_next(kind: str, rule: OnConflict) -> None:
    """After a kill at any call and a resume, the member is complete and no upload is left.

    A split member that settling had already completed is not written again.
    """
    case, options = CASES[kind], Options(on_conflict=rule)
    deaths = 0
    for life in lifetimes(case, options):
        world, step = _planned(case, options)
        world.stores = cast(Any, Dying(world.buckets, life))
        try:
            world.finish(step)
        except KilledError:
            deaths += 1
        world.stores = None
        complete = world.out.objects.get(KEY + "m")
        world.assert_clean(world.resume(step.next.run), m=case.entry.content)
        if complete is not None and kind in {"copies", "segments"}:
            assert world.out.objects[KEY + "m"] is complete
        assert world.contents().keys() == {"m"}
    assert deaths > 10


@pytest.mark.parametrize("kind", sorted(CASES))
def test_a_killed_plan_is_made_again(kind: str) -> None:
    """After a kill at any call of the plan, the same request plans anew, or goes on."""
    case = CASES[kind]
    whole = Lifetime()
    world = World(case.tuning)
    request = world.request(case.archive)
    world.stores = cast(Any, Dying(world.buckets, whole))
    run = begin_run(request, world.context).next.run
    for call in range(1, whole.calls + 1):
        world = World(case.tuning)
        request = world.request(case.archive)
        world.stores = cast(Any, Dying(world.buckets, Lifetime(call, answered=True)))
        with pytest.raises(KilledError):
            begin_run(request, world.context)
        world.stores = None
        assert (
            world.finish(begin_run(request, world.context, KnownArchive(run))).verdict
            == "COMPLETED"
        )
        assert world.contents() == {"m": case.entry.content}


@pytest.mark.parametrize("kind", sorted(CASES))
def test_a_step_done_twice_changes_nothing(kind: str) -> None:
    """Every task and every settling may be done again after it ended: the object stays."""
    case = CASES[kind]
    world, step = _planned(case, Options())
    run, steps = world.records(step.next.run).read_plan().run, []
    while step.report is None:
        steps.append(step.next)
        for task in (*step.next.tasks, *step.next.tasks):
            run_task(run, task, world.context)
        step = settle(step.next, world.context)
    stored = world.out.objects[KEY + "m"]
    for done in steps:
        for task in done.tasks:
            run_task(run, task, world.context)
        assert settle(done, world.context).report is not None
    assert world.out.objects[KEY + "m"] is stored
    world.assert_clean(world.resume(run.id), m=case.entry.content)


class DwindlingClock(ManualClock):
    """Says a few times that there is time; then the worker's time is nearly over."""

    def remaining(self) -> float:
        self.left -= 1  # how often it still says so
        return 900.0 if self.left >= 0 else 5.0


@pytest.mark.parametrize("times", [0, 1])
@pytest.mark.parametrize("kind", sorted(CASES))
def test_a_worker_near_its_limit_ends_and_the_next_round_goes_on(kind: str, times: int) -> None:
    """A task whose time is over drops its upload and ends normally; it is in the next round."""
    case = CASES[kind]
    world, step = _planned(case, Options())
    run = world.records(step.next.run).read_plan().run
    left = 0
    for task in step.next.tasks:
        world.clock = DwindlingClock(times)
        report = run_task(run, task, world.context)
        left += report.unfinished
        assert not report.uploaded
    assert left
    world.clock = ManualClock()
    after = settle(step.next, world.context)
    assert after.next.round == 1
    world.assert_clean(world.finish(after), m=case.entry.content)


IN = Location("s3", "ingest", "mac.zip")
BIG = MacFile("big.bin", 5 * GIB)
WIDE = deflated("wide.bin", WRAP + 9)  # 4 MB of data
NARROW = deflated("narrow.bin", WRAP + 5 * settings.MIB)  # its size is guessed as 5 MiB
SMALL = [MacFile("a.bin", 5), MacFile("b.bin", 7)]


@dataclass(eq=False)
class SparseSource(Source):
    """An archive that is mostly zeros."""

    _archive: Sparse

    def stat(self, location: Location) -> Tail:
        return Tail(b"", Pin(self._archive.size, '"sparse"'), MODIFIED)

    def stream(self, location: Location, pin: Pin, want: ByteRange) -> Iterator[Buffer]:
        for start in range(want.start, want.stop, settings.MIB):
            yield self._archive.read(ByteRange(start, min(start + settings.MIB, want.stop)))


@dataclass(eq=False)
class ForgetfulBucket(MemoryBucket):
    """Keeps of large objects only their sizes. What is copied is zeros."""

    archive: Sparse
    sizes: dict[str, int] = field(default_factory=dict)

    def upload_part(
        self, upload: Upload, number: int, offset: int, body: Buffer, crc32: int
    ) -> Part:
        return self._keep(upload, Part(number, f'"{number}"', len(body), crc32))

    def copy_part(
        self, upload: Upload, number: int, offset: int, source: Location, pin: Pin, span: ByteRange
    ) -> Part:
        for start, piece in self.archive.pieces.items():
            assert span.stop <= start or span.start >= start + len(piece)
        return self._keep(
            upload, Part(number, f'"{number}"', span.length, crc_of_zeros(span.length))
        )

    def _keep(self, upload: Upload, part: Part) -> Part:
        self._pending(upload).parts[part.number] = (part, b"")
        return part

    def complete_upload(self, upload: Upload, parts: Sequence[Part], *, if_absent: bool) -> str:
        self.objects[upload.key] = Stored(b"", self.pending.pop(upload.upload_id).facts, '"whole"')
        self.sizes[upload.key] = sum(part.size for part in parts)
        return "whole"

    def head(self, key: str) -> StoredObject | None:
        stored = super().head(key)
        return stored and stored._replace(size=self.sizes.get(key, stored.size))

    def list_objects(self, prefix: str, first: str, last: str) -> Iterator[StoredObject]:
        for listed in super().list_objects(prefix, first, last):
            yield listed._replace(size=self.sizes.get(listed.key, listed.size))


class Mac:
    """A world with one archive of macOS."""

    def __init__(self, *files: MacFile, **tuning: int) -> None:
        self.files = files
        archive = build_mac(*files)
        # Of 64 MiB each, so few parts have no room for a member that is 4 GiB larger than guessed.
        stores = MemoryStores(
            out=ForgetfulBucket(archive, part_limits=LIMITS._replace(max_parts=60))
        )
        vars(stores)["source"] = lambda _: SparseSource(archive)
        self.world = World(replace(settings.Tuning(), **tuning), stores)

    def run(self, on_conflict: OnConflict = OnConflict.OVERWRITE) -> Report:
        return self.world.run_request(
            Request(IN, OUT, Options("{member}", on_conflict=on_conflict))
        )

    def check(self, report: Report) -> None:
        assert report.verdict == "COMPLETED", report
        assert self.world.out.pending == {}
        for file in self.files:
            stored = self.world.out.head(file.name)
            assert stored is not None
            assert (stored.size, stored.crc32) == (file.size, crc_of_zeros(file.size))
        compared = verification.verify_objects(
            Request(IN, OUT, Options("{member}")), self.world.context, verification.Effort()
        )
        assert compared.verdict is verification.Comparison.EQUAL, compared
        again = self.run(OnConflict.SKIP_UNCHANGED)
        assert (again.unchanged, again.extracted) == (len(self.files), 0)
        assert report.bytes_out == sum(file.size for file in self.files)


@pytest.mark.parametrize(
    ("file", "tuning", "kind", "tasks", "warning"),
    [
        (BIG, {"copy_task_bytes": 2 * GIB}, TaskKind.COPY, 3, "offsets-wrapped"),
        (NARROW, {"small_member": 16 * settings.MIB}, TaskKind.BATCH, 1, "size-wrapped"),
        (WIDE, {}, TaskKind.STREAM, 3, "size-wrapped"),
        (deflated("low.bin", WRAP + GIB), {}, TaskKind.STREAM, 3, "size-wrapped"),
        (WIDE, {"split_from": settings.MIB}, TaskKind.SCAN, 4, "size-wrapped"),
    ],
)
def test_a_member_of_4_gib(
    file: MacFile, tuning: dict[str, int], kind: TaskKind, tasks: int, warning: str
) -> None:
    """Several tasks copy it, or its size is found when it is inflated, in whatever task.

    The members around it are at their places, and keep their warnings.
    """
    sizes = {"part_bytes": 64 * settings.MIB, "segment_bytes": settings.MIB, "small_member": 1}
    flagged = MacFile("a.bin", 5, central={"flags": 0})
    mac = Mac(flagged, file, SMALL[1], **{**sizes, **tuning})
    report = mac.run()
    assert len(mac.world.tasks(report, kind)) == tasks
    mac.check(report)
    assert report.warnings == {warning: 1, "lfh-flag3-mismatch": 1}


@pytest.mark.parametrize("place", ["out/", "s3://out/"])
def test_members_around_4_gib_by_the_command(
    program: processes.Program, s3: memory_server.MemoryS3, place: str
) -> None:
    """What lies after a member of 5 GiB is found, in a file, for a folder and for S3."""
    build_mac(SMALL[0], BIG, SMALL[1]).write(program.folder / "mac.zip")
    program.extract(
        "mac.zip", place, "--prefix", "", "--exclude", "big*", "--endpoint-url", s3.url
    ).ends(0, "offsets-wrapped")
    assert (s3.buckets["out"].bodies or program.files("out")) == {
        file.name: bytes(file.size) for file in SMALL
    }


def test_looking_into_an_archive_of_macos(program: processes.Program) -> None:
    """Sizes and contents are the real ones."""
    build_mac(SMALL[0], BIG, SMALL[1]).write(program.folder / "mac.zip")
    assert (
        {line["name"]: line["size"] for line in program.run("ls", "mac.zip", "--json").lines},
        program.run("cat", "mac.zip", "b.bin").out,
    ) == ({file.name: file.size for file in (*SMALL, BIG)}, "\0" * 7)


def test_a_refused_archive_of_macos_says_so(program: processes.Program) -> None:
    """The refusal names macOS and 4 GiB, and does not advise to fetch the archive again."""
    build_mac(SMALL[0], BIG, SMALL[1], headers=(2, 1, 0)).write(program.folder / "mac.zip")
    program.extract("mac.zip", "out").ends(3, "modulo 4 GiB, as macOS writes").hides("Fetch")
