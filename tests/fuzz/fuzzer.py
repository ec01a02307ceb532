"""A mutation fuzzer, deterministic by seed and case number.

A crash is any exception but the refusals of our own error tree; a hang is an
input that takes longer than `HANG_SECONDS`. Inputs found are kept in `found/`
and run by the suite for ever.

Some targets have an oracle. Of `names` it is what docs/security.md promises of every accepted
member: one key each, which no other member has, below the prefix, short enough for S3, and no step
upwards. Of `boundary`, the search for places to split a deflate stream at, it is zlib: what the
segments give may be a refusal, for then the member is streamed; it may not be other bytes. Of
`placing`, odd keys in a folder with traps, it is the file system: what lies outside of the folder
stays as it is, and a file that is said to be written is there, under its own name, with its bytes.
What `answers` reads of mutated HTTP answers, of a server that gives each request the same bytes and
hangs up, is right in form, or refused in our own words.
"""

import os
import re
import tempfile
import unicodedata
import zlib
from collections.abc import Callable
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from random import Random

from s3unzip.deflate import DeflateError
from s3unzip.errors import ArchiveError, ConflictError, RejectedError, S3UnzipError, UsageError
from s3unzip.model import Location, Options, Pin, Request
from s3unzip.planning.select import parse_template
from s3unzip.stores.config import StoreConfig
from s3unzip.stores.folder import FolderDestination
from s3unzip.stores.listing import list_pages
from s3unzip.stores.open import OpenedStores
from s3unzip.stores.ports import ObjectFacts, Upload
from s3unzip.stores.web import WebSource
from s3unzip.zip import (
    ByteRange,
    Index,
    Limits,
    Member,
    Policy,
    fold_key,
)
from s3unzip.zip.decode import MemberDecoder, decode_member
from tests.corpus.families import ARCHIVES
from tests.corpus.larger import read_labels
from tests.corpus.ways import extract_member, read_index
from tests.support.servers import HOST, raw_server
from tests.support.streams import ENCODERS, mixed, split_inflate
from tests.support.zips import (
    LZMA,
    METHODS,
    ZSTD,
    Entry,
    build,
    compress,
)

SIGNATURES = (
    b"PK\x01\x02", b"PK\x03\x04", b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07", b"PK\x07\x08",
)  # fmt: skip
# The longest fixed record, the ZIP64 end record, has 56 bytes.
RECORD_LENGTH = 56
VALUES = (0, 1, 2, 8, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFE, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFE, 0xFFFFFFFF)


def _find_records(data: bytes | bytearray) -> list[int]:
    return [found.start() for sign in SIGNATURES for found in re.finditer(re.escape(sign), data)]


def _pick_field(data: bytearray, chance: Random) -> int:
    records = _find_records(data) or [chance.randrange(len(data))]
    return chance.choice(records) + chance.randrange(4, RECORD_LENGTH)


def _flip_bit(data: bytearray, others: list[bytes], chance: Random) -> None:
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)


def set_field(data: bytearray, others: list[bytes], chance: Random) -> None:
    """Set a field of some record to a value at the edge of something."""
    at = _pick_field(data, chance)
    length = chance.choice((1, 2, 2, 4, 4, 8))
    value = chance.choice(VALUES) + chance.choice((0, 0, 0, len(data), at))
    data[at : at + length] = (value & (1 << 8 * length) - 1).to_bytes(length, "little")


def nudge_field(data: bytearray, others: list[bytes], chance: Random) -> None:
    """Add or take a little from a 16- or 32-bit field of some record."""
    at, length = _pick_field(data, chance), chance.choice((2, 4))
    value = int.from_bytes(data[at : at + length], "little") + chance.randrange(-40, 41)
    data[at : at + length] = (value & (1 << 8 * length) - 1).to_bytes(length, "little")


def _truncate(data: bytearray, others: list[bytes], chance: Random) -> None:
    at = chance.randrange(len(data))
    data[:] = chance.choice((data[:at], data[at:]))


def _remove(data: bytearray, others: list[bytes], chance: Random) -> None:
    at = chance.randrange(len(data))
    del data[at : at + chance.randrange(1, 40)]


def _repeat(data: bytearray, others: list[bytes], chance: Random) -> None:
    records = _find_records(data) or [0]
    at = chance.choice(records)
    piece = data[at : at + chance.randrange(1, 200)]
    to = chance.choice((chance.choice(records), chance.randrange(len(data) + 1)))
    data[to:to] = piece


def splice(data: bytearray, others: list[bytes], chance: Random) -> None:
    """Put a slice of another seed in, cut at records of both."""
    other = chance.choice(others)
    start = chance.choice([*_find_records(other), 0])
    at = chance.choice([*_find_records(data), len(data)])
    data[at : at + chance.choice((0, 0, 30, 46))] = other[start : start + chance.randrange(1, 400)]


def _overwrite(data: bytearray, others: list[bytes], chance: Random) -> None:
    at = chance.randrange(len(data))
    length = chance.randrange(1, 9)
    data[at : at + length] = chance.randbytes(length)


# Each changes bytes, and may take some of other seeds.
MUTATIONS: tuple[Callable[[bytearray, list[bytes], Random], None], ...] = (
    _flip_bit, _flip_bit, set_field, set_field, nudge_field, nudge_field, _truncate, _remove,
    _repeat, splice, _overwrite,
)  # fmt: skip


def mutate(seed: bytes, others: list[bytes], chance: Random) -> bytes:
    """Return `seed` changed by one to six mutations."""
    data = bytearray(seed)
    for _ in range(chance.choice((1, 1, 1, 2, 3, 6))):
        if not data:
            break
        chance.choice(MUTATIONS)(data, others, chance)
    return bytes(data[:200_000])


STALL_SECONDS = 0.3
VARIABLES = {  # of the process that asks
    "AWS_ACCESS_KEY_ID": "fuzz",
    "AWS_SECRET_ACCESS_KEY": "fuzz",
    "AWS_DEFAULT_REGION": "eu-west-1",
    "no_proxy": HOST,
}
LENGTH = 20  # bytes that are asked for
SIZE = 1_000  # of the archive on the web

_RANGE = (
    b"HTTP/1.1 206 Partial Content\r\nContent-Length: 20\r\nContent-Range: bytes 980-999/1000\r\n"
    b'ETag: "e"\r\nLast-Modified: Sun, 22 Nov 2026 00:00:00 GMT\r\n\r\n01234567890123456789'
)
_ENTRY = (
    b"<Contents><Key>a%2Bb</Key><LastModified>2026-11-22T00:00:00Z</LastModified>"
    b"<ETag>&quot;e&quot;</ETag><Size>7</Size></Contents>"
)
_LIST = (
    b'<?xml version="1.0" encoding="UTF-8"?>\n<ListBucketResult '
    b'xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><EncodingType>url</EncodingType>'
    b"<IsTruncated>false</IsTruncated>" + _ENTRY * 3 + b"</ListBucketResult>"
)
_LISTING = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(_LIST), _LIST)
_ERROR = b"<Error><Code>SlowDown</Code><Message>Reduce your rate</Message></Error>"
_REFUSED = b"HTTP/1.1 503 Slow Down\r\nContent-Length: %d\r\n\r\n%s" % (len(_ERROR), _ERROR)
ANSWERS = (
    (
        b'HTTP/1.1 200 OK\r\nContent-Length: 300\r\nETag: "0123456789abcdef0123456789abcdef"\r\n'
        b"x-amz-checksum-crc32: y/Q5Jg==\r\nx-amz-meta-zip-crc32: cbf43926\r\n"
        b"Connection: close\r\n\r\n"
    ),
    _RANGE,
    _RANGE,
    (
        b"HTTP/1.1 206 Partial Content\r\nTransfer-Encoding: chunked\r\n"
        b'Content-Range: bytes 980-999/1000\r\nETag: "e"\r\n\r\n'
        b"a\r\n0123456789\r\na\r\n0123456789\r\n0\r\n\r\n"
    ),
    _LISTING,
    _LISTING,
    _REFUSED,
    b"HTTP/1.1 302 Found\r\nLocation: /other?x=1\r\nContent-Length: 0\r\n\r\n",
)
TOKENS = (
    b"0", b"-1", b"99999999999999999999", b"9" * 5_000, b"\xb2", b"\xff\xfe", b"\r\n", b"\n",
    b"\0", b": ", b",", b"/", b"-", b"chunked", b"gzip", b"200", b"206", b"416", b"304", b"100",
    b"//host.invalid/", b"https://", b"..", b"Content-Length: 3\r\n",
    b"Transfer-Encoding: chunked\r\n", b"Location: http://127.0.0.1:1/\r\n",
    b"Content-Encoding: gzip\r\n", b"Connection: close\r\n",
    b"x-amz-bucket-region: eu-west-9\r\n", b"<", b"&", b"&lt;", b"<!DOCTYPE a [<!ENTITY b 'c'>]>",
    b"<IsTruncated>true</IsTruncated>", b"<Key></Key>", b"%0A", b"%", b"x" * 70_000,
)  # fmt: skip


_open = ExitStack()  # as long as the process
_next_answer = [b""]


@cache
def _server() -> str:
    """Start a server that gives the next answer to each request, then hangs up; return its host."""
    return _open.enter_context(raw_server(lambda opened: opened.sendall(_next_answer[0])))


def run_answers(data: bytes, chance: Random) -> bool:
    """Ask for something, and read a mutated answer; return whether it was refused.

    Args:
        data: foreign bytes, given as the answer now and then.
        chance: chooses the answer and its mutations.
    """
    return read_answer(data if chance.random() < 0.02 else _mutated(chance), chance)


def read_answer(answer: bytes, chance: Random) -> bool:
    """Ask for something that is answered so; return whether the answer was refused."""
    os.environ.update(VARIABLES)
    _next_answer[0] = answer
    try:
        chance.choice((_ask_web, _ask_s3))(_server(), chance)
    except S3UnzipError:
        return True
    return False


def _mutated(chance: Random) -> bytes:
    answer = bytearray(chance.choice(ANSWERS))
    for _ in range(chance.choice((0, 1, 1, 2, 4))):
        at = chance.randrange(len(answer) + 1)
        if chance.random() < 0.5:  # at a line
            at = answer.rfind(b"\n", 0, at) + 1
        answer[at : at + chance.choice((0, 0, 1, 3))] = chance.choice(TOKENS)
    if chance.random() < 0.1:
        del answer[chance.randrange(len(answer) + 1) :]
    return bytes(answer)


def _ask_web(host: str, chance: Random) -> None:
    web = WebSource(StoreConfig(connect_seconds=2.0, stall_seconds=STALL_SECONDS))
    location = Location("http", host, "a.zip?token=x")
    match chance.choice(("tail", "head", "read")):
        case "tail":
            tail = web.tail(location, LENGTH)
            assert len(tail.data) <= min(LENGTH, tail.pin.size)
        case "head":
            assert web.stat(location).pin.size >= 0
        case "read":
            archive = web.pinned(location, Pin(SIZE, chance.choice(('"e"', None, "W/x"))))
            assert len(b"".join(archive.stream(ByteRange(SIZE - LENGTH, SIZE)))) == LENGTH


def _ask_s3(host: str, chance: Random) -> None:
    target = OpenedStores(
        StoreConfig(
            Location("s3", "work", ""),
            f"http://{host}",
            connect_seconds=2.0,
            stall_seconds=STALL_SECONDS,
        )
    ).destination(Location("s3", "bucket", ""))
    if chance.choice(("head", "list", "list")) == "head":
        found = target.head("a")
        assert found is None or found.size >= 0
        return
    for page in list_pages(target, "", lambda call: call()):
        for entry in page.objects:
            assert (type(entry.key), entry.size >= 0) == (str, True)


PARTS = (
    "a", "b", "c", "d", "file", "link", "out", "loop", "fifo", "..", ".", "", " ", "...", "\\",
    "a\\b", "~", "-", "*", "\n", "\x00", "\x7f", "e\u0301", "\u00e9", "\u202e",
    "\U0001f4e6", "a" * 255, "a" * 256, "\u00e4" * 130, ".s3unzip-x", ".s3unzip-0123456789abcdef",
    ".s3unzip-x.note", "C:",
)  # fmt: skip
OPERATIONS = 6  # on one folder


def lay(parent: Path) -> Path:
    """Make a folder with links out of it and files where folders are wanted; return it."""
    inside, outside = parent / "in", parent / "out"
    for folder in (inside / "a" / "b", outside / "d"):
        folder.mkdir(parents=True)
    (outside / "file").write_bytes(b"outside")
    (outside / "d" / "file").write_bytes(b"outside, too")
    (inside / "file").write_bytes(b"a file")
    (inside / "link").symlink_to("../out/file")
    (inside / "out").symlink_to(outside)
    (inside / "a" / "out").symlink_to("../../out/d")
    (inside / "a" / "loop").symlink_to("loop")
    os.mkfifo(inside / "a" / "fifo")
    return inside


def _around(inside: Path) -> list[tuple[str, bytes, int]]:
    return [
        (str(path), path.read_bytes(), path.stat().st_mode)
        for path in sorted(inside.parent.rglob("*"))
        if path.is_file() and not path.is_relative_to(inside)
    ]


def run_placing(data: bytes, chance: Random) -> bool:
    """Do some operations with odd keys; return whether most were refused.

    Args:
        data: the content of what is written.
        chance: chooses the keys and the operations.
    """
    with tempfile.TemporaryDirectory(prefix="s3unzip-fuzz-") as parent:
        inside = lay(Path(parent))
        before = _around(inside)
        target = FolderDestination(str(inside), private=chance.random() < 0.2)
        refused = 0
        for _ in range(OPERATIONS):
            refused += _operate(target, inside, data[: chance.choice((0, 1, 300))], chance)
            assert _around(inside) == before
        return refused > OPERATIONS // 2


def _operate(target: FolderDestination, root: Path, body: bytes, chance: Random) -> bool:
    key = _odd_key(root, chance)
    # To the ends of what an NTFS field can say.
    mtime = chance.choice(("0", "-11644473600", "1833029933770"))
    facts = ObjectFacts("text/plain", {"mtime": mtime})
    if_absent = chance.random() < 0.5
    try:
        match chance.choice(("put", "put", "upload", "look", "delete", "abort")):
            case "put":
                target.put(key, body, facts, if_absent=if_absent)
                _check_written(root, key, body)
            case "upload":
                upload = Upload(key, target.create_upload(key, facts))
                part = target.upload_part(upload, 1, 0, body, zlib.crc32(body))
                target.complete_upload(upload, [part], if_absent=if_absent)
                _check_written(root, key, body)
            case "look":
                found = target.head(key)
                assert found is None or found.size == sum(map(len, target.read(key)))
            case "delete":
                target.delete([key])
            case "abort":
                target.abort_upload(Upload(key, chance.choice(PARTS)))
    except ConflictError:
        assert if_absent
        return True
    except S3UnzipError:
        return True
    return False


def _odd_key(root: Path, chance: Random) -> str:
    parts = chance.choices(PARTS, k=chance.randint(1, 4))
    return chance.choice((f"{root}/", f"{root}/", f"{root}/", f"{root}", "", "/")) + "/".join(parts)


def _check_written(root: Path, key: str, body: bytes) -> None:
    path = Path(key)
    assert (".." in path.parts, path.is_relative_to(root.resolve())) == (False, True)
    assert (path.resolve(), path.read_bytes()) == (path, body)


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
        output = split_inflate(stream, chance.randint(1, 6))
    except DeflateError:
        assert changed or whole is None, "a good stream was refused"
        return True
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
    names: list[str | bytes] = [
        "".join(chance.choices(PIECES, k=chance.randint(1, 6)))
        for _ in range(chance.randint(1, 12))
    ]
    names.append(data[: chance.choice((0, 5, 60))])
    if chance.random() < 0.5:  # the same again, in another form
        again = chance.choice([name for name in names if isinstance(name, str)])
        names.append(unicodedata.normalize(chance.choice(("NFC", "NFD", "NFKD")), again).upper())
    policy = Policy(lenient=chance.random() < 0.5)
    try:
        index = read_index(build(*(Entry(name, b"x") for name in names)), policy)
    except RejectedError:
        return True
    _check_index(index)
    return _check_keys(index, chance) or bool(index.failures)


def _check_index(index: Index) -> None:
    """Check what is promised of the accepted members, whose keys are their paths."""
    paths = [member.path for member in index.members]
    assert len(set(paths)) == len(paths), "two members with one key"
    for path in paths:
        assert not {"", ".", ".."}.intersection(path.rstrip("/").split("/")), path
        assert ("\0" in path, 0 < len(path.encode()) <= MAX_KEY) == (False, True)
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
    whole = _summarise_index(data, policy)
    assert _summarise_index(data, policy, chance.choice((1, 7, 64))) == whole
    return isinstance(whole, str)


def _summarise_index(data: bytes, policy: Policy, step: int | None = None) -> object:
    try:
        index = read_index(data, policy, step)
    except RejectedError as error:
        return error.finding.code
    return list(index.members), list(index.failures), index.warnings


def run_local(data: bytes, chance: Random) -> bool:
    """Open, decode and close every member of whatever index there is."""
    policy = chance.choice(POLICIES)
    try:
        index = read_index(data, policy)
    except RejectedError:
        return True
    step = chance.choice((None, 1, 100))
    refused = False
    for member in index.members:
        try:
            extract_member(data, member, policy, step)
        except ArchiveError:
            refused = True
    return refused


def run_codecs(data: bytes, chance: Random) -> bool:
    """Decode a stream of some method, whole and in steps: both must say the same."""
    method, policy = chance.choice([*METHODS]), chance.choice(POLICIES)
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
            return bytes(decode_member(member, data, policy).content)
        pieces = (data[start : start + step] for start in range(0, len(data), step))
        return b"".join(bytes(one) for one in MemberDecoder(member, policy).decode(pieces))
    except ArchiveError as error:
        return error.finding.code


TARGETS = {
    "directory": run_directory,
    "local": run_local,
    "codecs": run_codecs,
    "boundary": run_boundary,
    "placing": run_placing,
    "answers": run_answers,
    "names": run_names,
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
