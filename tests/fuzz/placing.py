"""Targets `answers`, of HTTP that is mutated, and `placing`, of odd keys in a folder with traps."""

import os
import shutil
import tempfile
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from random import Random
from zlib import crc32

from s3unzip.errors import ConflictError, S3UnzipError
from s3unzip.model import Location, Pin
from s3unzip.stores.config import StoreConfig
from s3unzip.stores.folder import FolderDestination
from s3unzip.stores.listing import list_pages
from s3unzip.stores.open import OpenedStores
from s3unzip.stores.ports import ObjectFacts, Upload
from s3unzip.stores.web import WebSource
from s3unzip.zip import ByteRange
from tests.support.servers import HOST, raw_server

STALL_SECONDS = 0.3
VARIABLES = {  # of the process that asks
    "AWS_ACCESS_KEY_ID": "fuzz",
    "AWS_SECRET_ACCESS_KEY": "fuzz",
    "AWS_DEFAULT_REGION": "eu-west-1",
    "no_proxy": HOST,
}
LENGTH = 20  # bytes that are asked for
SIZE = 1_000  # of the archive on the web

_HEAD = (
    b'HTTP/1.1 200 OK\r\nContent-Length: 300\r\nETag: "0123456789abcdef0123456789abcdef"\r\n'
    b"x-amz-checksum-crc32: y/Q5Jg==\r\nx-amz-meta-zip-crc32: cbf43926\r\nConnection: close\r\n\r\n"
)
_RANGE = (
    b"HTTP/1.1 206 Partial Content\r\nContent-Length: 20\r\nContent-Range: bytes 980-999/1000\r\n"
    b'ETag: "e"\r\nLast-Modified: Sun, 22 Nov 2026 00:00:00 GMT\r\n\r\n01234567890123456789'
)
_CHUNKED = (
    b"HTTP/1.1 206 Partial Content\r\nTransfer-Encoding: chunked\r\n"
    b'Content-Range: bytes 980-999/1000\r\nETag: "e"\r\n\r\n'
    b"a\r\n0123456789\r\na\r\n0123456789\r\n0\r\n\r\n"
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
_MOVED = b"HTTP/1.1 302 Found\r\nLocation: /other?x=1\r\nContent-Length: 0\r\n\r\n"
ANSWERS = (_HEAD, _RANGE, _RANGE, _CHUNKED, _LISTING, _LISTING, _REFUSED, _MOVED)
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
    ask = _ask_web if chance.random() < 0.5 else _ask_s3
    try:
        ask(_server(), chance)
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
            assert len(tail.data) + tail.missing == min(LENGTH, tail.pin.size)
        case "head":
            assert web.stat(location).pin.size >= 0
        case "read":
            archive = web.pinned(location, Pin(SIZE, chance.choice(('"e"', None, "W/x"))))
            assert len(b"".join(archive.stream(ByteRange(SIZE - LENGTH, SIZE)))) == LENGTH


def _ask_s3(host: str, chance: Random) -> None:
    access = StoreConfig(
        Location("s3", "work", ""),
        f"http://{host}",
        connect_seconds=2.0,
        stall_seconds=STALL_SECONDS,
    )
    target = OpenedStores(access).destination(Location("s3", "bucket", ""))
    if chance.choice(("head", "list", "list")) == "head":
        found = target.head("a")
        assert found is None or found.size >= 0
        return
    for page in list_pages(target, "", lambda call: call()):
        for entry in page.objects:
            assert isinstance(entry.key, str)
            assert entry.size >= 0


PARTS = (
    "a", "b", "c", "d", "file", "link", "out", "loop", "fifo", "..", ".", "", " ", "...", "\\",
    "a\\b", "~", "-", "*", "\n", "\x00", "\x7f", "e\u0301", "\u00e9", "\u202e",
    "\U0001f4e6", "a" * 255, "a" * 256, "\u00e4" * 130, ".s3unzip-x", ".s3unzip-0123456789abcdef",
    ".s3unzip-x.note", "C:",
)  # fmt: skip
MTIMES = ("0", "-11644473600", "1833029933770")  # to the ends of what an NTFS field can say
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
    paths = (path for path in sorted(inside.parent.rglob("*")) if path.is_file())
    return [
        (str(path), path.read_bytes(), path.stat().st_mode)
        for path in paths
        if not path.is_relative_to(inside)
    ]


def run_placing(data: bytes, chance: Random) -> bool:
    """Do some operations with odd keys; return whether most were refused.

    Args:
        data: the content of what is written.
        chance: chooses the keys and the operations.
    """
    parent = Path(tempfile.mkdtemp(prefix="s3unzip-fuzz-"))
    try:
        inside = lay(parent)
        before = _around(inside)
        target = FolderDestination(str(inside), private=chance.random() < 0.2)
        refused = 0
        for _ in range(OPERATIONS):
            refused += _operate(target, inside, data[: chance.choice((0, 1, 300))], chance)
            assert _around(inside) == before
        return refused > OPERATIONS // 2
    finally:
        shutil.rmtree(parent)


def _operate(target: FolderDestination, root: Path, body: bytes, chance: Random) -> bool:
    key = _odd_key(root, chance)
    facts = ObjectFacts("text/plain", {"mtime": chance.choice(MTIMES)})
    if_absent = chance.random() < 0.5
    try:
        match chance.choice(("put", "put", "upload", "look", "delete", "abort")):
            case "put":
                target.put(key, body, facts, if_absent=if_absent)
                _check_written(root, key, body)
            case "upload":
                upload = Upload(key, target.create_upload(key, facts))
                part = target.upload_part(upload, 1, 0, body, crc32(body))
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
    assert ".." not in path.parts
    assert path.resolve() == path
    assert path.is_relative_to(root.resolve())
    assert path.read_bytes() == body
