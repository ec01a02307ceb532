"""A mutation fuzzer, deterministic by seed and case number.

A crash is any exception but the refusals of our own error tree; a hang is an
input that takes longer than `HANG_SECONDS`. Inputs found are kept in `found/`
and run by the suite for ever.
"""

import unicodedata
import zlib
from functools import cache
from pathlib import Path
from random import Random

from s3unzip.deflate import DeflateError, split_inflate
from s3unzip.errors import ArchiveError, RejectedError, UsageError
from s3unzip.model import Location, Options, Request
from s3unzip.planning.select import parse_template
from s3unzip.zip import Index, Limits, Member, MemberDecoder, Policy, decode_whole, fold_key
from tests.corpus.core import Cut, extract_member, read_index
from tests.corpus.families import ARCHIVES
from tests.corpus.larger import read_labels
from tests.fuzz.mutations import mutate
from tests.fuzz.placing import run_answers, run_placing
from tests.simulation.schedule import run_seed
from tests.support.streams import ENCODERS, mixed
from tests.support.zips import (
    LZMA,
    METHODS,
    ZSTD,
    Entry,
    build,
    compress,
)

MAX_OUTPUT = 1 << 24  # bytes; a mutated stream can grow a thousandfold


def run_boundary(data: bytes, chance: Random) -> bool:
    """Split a stream and inflate its segments; return whether that was refused.

    Args:
        data: a stream of somebody else's, taken now and then.
        chance: chooses everything else.
    """
    stream = chance.choice(_seeds())
    changed = chance.random() < 0.8
    if changed:
        stream = data if chance.random() < 0.02 else _mutate(stream, chance)
    whole = _inflate(stream) if stream else None
    if not stream or (whole is not None and len(whole) > MAX_OUTPUT):
        return True
    try:
        output, crc = split_inflate(stream, chance.randint(1, 6))
    except DeflateError:
        assert changed or whole is None, "a good stream was refused"
        return True
    assert crc == zlib.crc32(output)
    assert whole is None or output == whole
    return False


@cache
def _seeds() -> list[bytes]:
    names = ("zlib-1", "zlib-9-small-blocks", "zlib-fixed", "zlib-6", "isal-2")
    content = mixed([("words", 60_000), ("noise", 40_000), ("words", 90_000), ("zeros", 50_000)], 9)
    return [ENCODERS[name](content) for name in names]


def _mutate(stream: bytes, chance: Random) -> bytes:
    """Change a few bits anywhere, or mutate a piece; most of the stream stays good."""
    if chance.random() < 0.5:
        changed = bytearray(stream)
        for _ in range(chance.randint(1, 4)):
            changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
        return bytes(changed)
    start = chance.randrange(len(stream))
    piece = mutate(stream[start : start + 2_000], [seed[:2_000] for seed in _seeds()], chance)
    return stream[:start] + piece + stream[start + 2_000 :]


def _inflate(stream: bytes) -> bytes | None:
    inflater = zlib.decompressobj(-15)
    try:
        output = inflater.decompress(stream, MAX_OUTPUT + 1)
    except zlib.error:
        return None
    return output if inflater.eof or len(output) > MAX_OUTPUT else None


PIECES = (
    "a", "A", "b", "/", "/", "//", ".", "..", "\\", ":", "C:", "\0", "\x1f", "\x7f", " ",
    "%2e%2e", "soap", "\u00e9", "e\u0301", "E\u0301", "\u00c9", "\u00df", "ss", "SS", "\u1e9e",
    "\u0130", "i\u0307", "\u03c3", "\u03c2", "\u212b", "\u00c5", "\ufb01", "\u202e", "\ufeff",
    "\U0001f4e6", "\u0345", "\u0301" * 29, "\u0301" * 40, "\u0f73\u0f71", "\uac00",
    "\u1100\u1161", "x" * 300,
)  # fmt: skip
TEMPLATES = (
    "{member}", "{archive_stem}/{member}", "{name}", "{dir}/{stem}{suffix}", "x/{dir}//{name}",
    "{archive_key}/{member}", "../{member}", "{stem}", "a{archive_dir}/{bucket}-{member}",
    "{dir}/../{name}", "{nothing}", "{member",
)  # fmt: skip
MAX_KEY = 1024  # bytes, by S3


def run_names(data: bytes, chance: Random) -> bool:
    """Read a directory of hostile names; return whether anything was refused.

    Args:
        data: raw bytes of some names.
        chance: makes the others.
    """
    names: list[str | bytes] = [_odd_name(chance) for _ in range(chance.randint(1, 12))]
    names.append(data[: chance.choice((0, 5, 60))])
    if chance.random() < 0.5:  # the same again, in another form
        again = chance.choice([name for name in names if isinstance(name, str)])
        names.append(unicodedata.normalize(chance.choice(("NFC", "NFD", "NFKD")), again).upper())
    policy = Policy(lenient=chance.random() < 0.5)
    try:
        index = read_index(build(*(Entry(name, b"x") for name in names)), policy, Cut())
    except RejectedError:
        return True
    _check_index(index)
    return _check_keys(index, chance) or bool(index.failures)


def _odd_name(chance: Random) -> str:
    return "".join(chance.choices(PIECES, k=chance.randint(1, 6)))


def _check_index(index: Index) -> None:
    """Check what is promised of the accepted members, whose keys are their paths."""
    paths = [member.path for member in index.members]
    assert len(set(paths)) == len(paths), "two members with one key"
    for path in paths:
        assert path
        assert not {"", ".", ".."}.intersection(path.rstrip("/").split("/")), path
        assert "\0" not in path
        assert len(path.encode()) <= MAX_KEY
    folded = {fold_key(path) for path in paths}
    collided = set(index.warnings) & {"case-collision", "unicode-collision"}
    assert len(folded) == len(paths) or collided, "a collision without a warning"


def _check_keys(index: Index, chance: Random) -> bool:
    """Make keys by a template; each is below the prefix. Return whether the template is refused."""
    text, strip = chance.choice(TEMPLATES), chance.choice((0, 0, 1, 2))
    source = Location("s3", "in", chance.choice(("a.zip", "d/e/a.zip", "a", "//a..zip")))
    try:
        options = Options(key_template=text, strip_components=strip)
        template = parse_template(Request(source, Location("s3", "out", "base/"), options))
    except UsageError:
        return True
    key_of = template.key_of()
    for member in index.members:
        key = key_of(member.path)
        assert key.startswith("base/"), key
        assert ".." not in key.removeprefix(template.prefix).split("/"), key
    return False


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
