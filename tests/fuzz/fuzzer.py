"""A mutation fuzzer, deterministic by seed and case number.

A crash is any exception but the refusals of our own error tree; a hang is an
input that takes longer than `HANG_SECONDS`. Inputs found are kept in `found/`
and run by the suite for ever.
"""

import zlib
from functools import cache
from pathlib import Path
from random import Random

from s3unzip.errors import ArchiveError, RejectedError
from s3unzip.zip import Limits, Member, MemberDecoder, Policy, decode_whole
from tests.corpus.core import Cut, extract_member, read_index
from tests.corpus.families import ARCHIVES
from tests.corpus.larger import read_labels
from tests.fuzz.answers import run_answers
from tests.fuzz.boundary import run_boundary
from tests.fuzz.mutations import mutate
from tests.fuzz.names import run_names
from tests.fuzz.placing import run_placing
from tests.simulation.schedule import run_seed
from tests.support.zips import (
    LZMA,
    METHODS,
    ZSTD,
    compress,
)

FOUND = Path(__file__).parent / "found"
HANG_SECONDS = 2.0
MAX_SEED_BYTES = 8_000
# A mutation easily declares gigabytes: the bounds that a careful caller sets.
POLICIES = tuple(
    Policy(lenient=lenient, limits=Limits(member_size=1 << 22, decoder_memory=1 << 24))
    for lenient in (False, True)
)


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
    cut, refused = Cut(chance.choice((None, 1, 100))), False
    for member in index.members:
        try:
            extract_member(data, member, policy, cut)
        except ArchiveError:
            refused = True
    return refused


def run_codecs(data: bytes, chance: Random) -> bool:
    """Decode a stream of some method, whole and in steps: both must say the same."""
    method, policy = chance.choice(METHODS), chance.choice(POLICIES)
    seeds = _stream_seeds(method)
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
    whole, cut = (_decode(member, data, policy, one) for one in (None, step))
    # libzstd takes some malformed frames when it has them whole that it refuses in pieces.
    if method != ZSTD:
        assert isinstance(whole, str) == isinstance(cut, str), (method, whole[:80], cut[:80])
    for decoded in (whole, cut):
        if isinstance(decoded, bytes):
            assert (len(decoded), zlib.crc32(decoded)) == (size, zlib.crc32(content))
    return isinstance(whole, str)


def _decode(member: Member, data: bytes, policy: Policy, step: int | None) -> bytes | str:
    try:
        if step is None:
            return bytes(decode_whole(member, data, policy))
        pieces = (data[start : start + step] for start in range(0, len(data), step))
        return b"".join(bytes(one) for one in MemberDecoder(member, policy).decode(pieces))
    except ArchiveError as error:
        return error.finding.code


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
def _archive_seeds() -> list[bytes]:
    seeds = [archive.whole for archive in ARCHIVES.values() if not archive.is_large]
    seeds += [label.read() for label in read_labels()]
    return [seed for seed in seeds if 0 < len(seed) <= MAX_SEED_BYTES]


@cache
def _stream_seeds(method: int) -> list[tuple[bytes, bytes]]:
    contents = (b"", b"x", b"text " * 400, bytes(100_000), Random(method).randbytes(3000))
    return [(compress(method, content), content) for content in contents]


def run_case(target: str, seed: int, case: int) -> bool:
    """Run one case; return whether it was refused."""
    chance = Random(f"{seed} {target} {case}")
    seeds = _archive_seeds()
    return TARGETS[target](mutate(chance.choice(seeds), seeds, chance), chance)
