"""A mutation fuzzer, deterministic by seed and case number.

A crash is any exception but the refusals of our own error tree; a hang is an
input that takes longer than `HANG_SECONDS`. Inputs found are kept in `found/`
and run by the suite for ever.
"""

import resource
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from random import Random

from s3unzip.errors import ArchiveError, RejectedError
from s3unzip.zip import Limits, Member, Policy
from s3unzip.zip.decode import MemberDecoder, decode_whole
from tests.corpus.core import Cut, extract_member, read_index
from tests.corpus.runner import CORPUS
from tests.fuzz.answers import run_answers
from tests.fuzz.boundary import run_boundary
from tests.fuzz.mutations import mutate
from tests.fuzz.names import run_names
from tests.fuzz.placing import run_placing
from tests.simulation.schedule import run_seed
from tests.zips import (
    DESCRIPTORS,
    LZMA,
    METHODS,
    ZSTD,
    Entry,
    Shape,
    build,
    compress,
    extra,
    unicode_path,
    zip64_extra,
)

FOUND = Path(__file__).parent / "found"
HANG_SECONDS = 2.0
MAX_SEED_BYTES = 8_000
# A mutation easily declares gigabytes: the bounds that a careful caller sets.
POLICIES = tuple(
    Policy(lenient=lenient, limits=Limits(member_size=1 << 22, decoder_memory=1 << 24))
    for lenient in (False, True)
)


@dataclass(slots=True)
class Report:
    """What a run of the fuzzer saw; memory in bytes, times in seconds of CPU."""

    target: str
    seconds: float = 0.0
    executions: int = 0
    refused: int = 0
    crashes: list[tuple[int, str]] = field(default_factory=list)
    hangs: list[tuple[int, float]] = field(default_factory=list)
    slowest: float = 0.0
    peak_memory: int = 0

    def __str__(self) -> str:
        return (
            f"{self.target}: {self.seconds:.0f} s of CPU,"
            f" {self.executions} executions, {self.refused} refused,"
            f" {len(self.crashes)} crashes, {len(self.hangs)} hangs,"
            f" slowest {self.slowest:.3f} s, peak memory {self.peak_memory >> 20} MiB"
        )


def _is_failing(run: Callable[[], object]) -> bool:
    """Run something; return whether it was refused in our own words."""
    try:
        run()
    except ArchiveError:
        return True
    return False


def run_directory(data: bytes, chance: Random) -> bool:
    """Locate, read and settle a directory, whole and cut: both must say the same."""
    policy = chance.choice(POLICIES)
    whole = _summarise_index(data, policy, Cut())
    assert _summarise_index(data, policy, Cut(chance.choice((1, 7, 64)))) == whole
    return isinstance(whole, str)


def _summarise_index(data: bytes, policy: Policy, cut: Cut) -> object:
    try:
        index = read_index(data, policy, cut)
    except RejectedError as error:
        return error.finding.code
    return list(index.members), list(index.failures), index.warnings


def run_local(data: bytes, chance: Random) -> bool:
    """Open, decode and close every member of whatever index there is."""
    policy = chance.choice(POLICIES)
    try:
        index = read_index(data, policy, Cut())
    except RejectedError:
        return True
    cut = Cut(chance.choice((None, 1, 100)))
    refused = [
        _is_failing(partial(extract_member, data, member, policy, cut)) for member in index.members
    ]
    return any(refused)


def run_codecs(data: bytes, chance: Random) -> bool:
    """Decode a stream of some method, whole and in steps: both must say the same."""
    method, policy = chance.choice(METHODS), chance.choice(POLICIES)
    seeds = stream_seeds(method)
    if chance.random() < 0.98:
        stream, content = chance.choice(seeds)
        data = mutate(stream, [other for other, _ in seeds], chance)
    else:
        content = data
    size = max(0, len(content) + chance.choice((0, 0, 0, -1, 1, 1000)))
    member = Member(
        0, "m", None, 0, len(data) + 31, len(data), size, zlib.crc32(content), method,
        chance.choice((0, 2)) if method == LZMA else 0, None, None,
    )  # fmt: skip
    step = chance.choice((1, 7, 100)) if len(data) < 5_000 else 4096
    whole = _decode(lambda: bytes(decode_whole(member, data, policy)))
    cut = _decode(lambda: _decode_in_steps(member, data, policy, step))
    # libzstd takes some malformed frames when it has them whole that it refuses in pieces.
    if method != ZSTD:
        assert isinstance(whole, str) == isinstance(cut, str), (method, whole[:80], cut[:80])
    for decoded in (whole, cut):
        if isinstance(decoded, bytes):
            assert (len(decoded), zlib.crc32(decoded)) == (size, zlib.crc32(content))
    return isinstance(whole, str)


def _decode(run: Callable[[], bytes]) -> bytes | str:
    try:
        return run()
    except ArchiveError as error:
        return error.finding.code


def _decode_in_steps(member: Member, data: bytes, policy: Policy, step: int) -> bytes:
    decoder, content = MemberDecoder(member, policy), bytearray()
    for start in range(0, len(data), step):
        for piece in decoder.feed(data[start : start + step]):
            content += piece
    decoder.finish()
    return bytes(content)


def run_runs(_: bytes, chance: Random) -> bool:
    """Run one schedule of the simulation; return whether faults were injected."""
    return bool(run_seed(chance.getrandbits(48)).injected)


TARGETS = {
    "directory": run_directory,
    "local": run_local,
    "codecs": run_codecs,
    "boundary": run_boundary,
    "placing": run_placing,
    "answers": run_answers,
    "names": run_names,
    "runs": run_runs,
}


@cache
def archive_seeds() -> list[bytes]:
    """Return archives of every shape that the builder knows, and small ones of the corpus."""
    seeds = list(_built_seeds())
    if CORPUS.exists():
        seeds.extend(
            path.read_bytes()
            for path in sorted((CORPUS / "archives").rglob("*"))
            if path.is_file() and path.stat().st_size <= MAX_SEED_BYTES
        )
    return [seed for seed in seeds if seed]


def _built_seeds() -> Iterator[bytes]:
    text = b"seed text, seed text" * 9
    wide = Entry("w", text, central={"size": 0xFFFFFFFF}, extra=zip64_extra(180), local_extra=b"")
    entries = (
        *(Entry(f"m{method}", text, method) for method in METHODS),
        *(Entry(f"d/{form}", text, 8, descriptor=form) for form in DESCRIPTORS),
        Entry("d/"),
        Entry("caf\u00e9", text, 8),
        Entry(b"x", text, extra=unicode_path(b"x", "y")),
        Entry("link", b"d/", attributes=0o120777 << 16),
        Entry("t", text, extra=extra(0x5455, b"\x03\0\0\0\0") + extra(0x7875, bytes(11))),
        wide,
    )
    for shape in (Shape(), Shape(zip64=True), Shape(prefix=b"stub"), Shape(comment=b"comment")):
        yield build(*entries, shape=shape)
        yield build(*entries[:2], shape=replace(shape, prefix=b"MZ"))
    yield build()


@cache
def stream_seeds(method: int) -> list[tuple[bytes, bytes]]:
    """Return streams of a method, each with its content."""
    chance = Random(method)
    contents = (b"", b"x", b"text " * 400, bytes(100_000), chance.randbytes(3000))
    return [(compress(method, content), content) for content in contents]


def run_case(target: str, seed: int, case: int) -> bool:
    """Run one case; return whether it was refused."""
    chance = Random(f"{seed} {target} {case}")
    seeds = archive_seeds()
    return TARGETS[target](mutate(chance.choice(seeds), seeds, chance), chance)


def run(target: str, seed: int, seconds: float, start: int = 0) -> Report:
    """Run cases from `start` on for some seconds of CPU: a busy machine counts for less."""
    report, case = Report(target), start
    first = began = time.process_time()
    while began - first < seconds:
        try:
            report.refused += run_case(target, seed, case)
        except Exception as error:  # noqa: BLE001 (anything that leaves the core is what is sought)
            report.crashes.append((case, repr(error)))
        ended = time.process_time()
        taken, began = ended - began, ended
        report.slowest = max(report.slowest, taken)
        if taken > HANG_SECONDS:
            report.hangs.append((case, taken))
        report.executions += 1
        case += 1
    report.seconds = began - first
    report.peak_memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return report
