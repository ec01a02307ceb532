"""The temporary file of an archive, and the source that reads it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from s3unzip.errors import (
    ServiceFaultError,
    SourceChangedError,
    StorageError,
    StoreFullError,
    UsageError,
)
from s3unzip.model import Location, Pin
from s3unzip.stores.factory import StoreConfig, open_stores
from s3unzip.stores.locations import STANDARD_INPUT
from s3unzip.stores.spool import file as spool_file
from s3unzip.stores.spool.file import Spool
from s3unzip.stores.web.access import WebAccess
from s3unzip.stores.web.source import WebSource
from s3unzip.zip import ByteRange
from tests.servers import HttpServer, Reply, WebFiles

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.servers import Asked

DATA = bytes(range(256)) * 40


@pytest.fixture(params=[True, False], ids=["without a name", "with a name"])
def spool(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Spool]:
    """A file on a system that opens descriptors by path, and on one that does not."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    if not request.param:
        monkeypatch.setattr(spool_file, "DESCRIPTORS", str(tmp_path / "nothing"))
    with Spool("a pipe", 20_000) as opened:
        assert len(list(tmp_path.iterdir())) == (0 if request.param else 1)
        yield opened
    assert list(tmp_path.iterdir()) == []


def test_what_is_written_is_read(spool: Spool) -> None:
    """The archive has the bytes, a pin by its content, and no other version."""
    spool.write(b"of an attempt that failed")
    spool.restart()
    for start in range(0, len(DATA), 1_000):
        spool.write(DATA[start : start + 1_000])
    kept = spool.finish(STANDARD_INPUT)
    assert Path(kept.path).read_bytes() == DATA
    source = open_stores(StoreConfig(spooled=kept)).source(STANDARD_INPUT)
    tail = source.tail(STANDARD_INPUT, 100)
    assert (tail.data, tail.pin) == (DATA[-100:], kept.pin)
    assert source.head(STANDARD_INPUT) == kept.pin
    archive = source.pinned(STANDARD_INPUT, kept.pin)
    assert archive.read(ByteRange(3, 5_000)) == DATA[3:5_000]
    with pytest.raises(SourceChangedError):
        source.pinned(STANDARD_INPUT, Pin(len(DATA), '"other"'))
    with pytest.raises(UsageError, match="parts of a split one"):
        source.head(Location("https", "host", "a.z01"))


def test_the_same_bytes_have_the_same_pin(spool: Spool) -> None:
    """So the same archive, piped in again, is the same run."""
    pins = set()
    for pieces in ([DATA], [DATA[:7], DATA[7:]]):
        spool.restart()
        for piece in pieces:
            spool.write(piece)
        pins.add(spool.finish(STANDARD_INPUT).pin)
    assert len(pins) == 1
    assert spool.finish(STANDARD_INPUT, '"of its server"').pin.etag == '"of its server"'


def test_too_many_bytes(spool: Spool) -> None:
    """They are refused as they come, or before if the size is known."""
    with pytest.raises(UsageError, match=r"a pipe: larger than 20,000 bytes.*--max-spool"):
        spool.expect(20_001)
    spool.write(DATA)
    with pytest.raises(UsageError, match="--max-spool"):
        spool.write(DATA)


def test_a_full_disk(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the system says of a full disk is told with the folder and what to do."""
    with Path("/dev/full").open("wb", buffering=0) as full:
        monkeypatch.setattr(spool, "_file", full)
        with pytest.raises(StoreFullError, match="set TMPDIR to a folder with more"):
            spool.write(DATA)
        monkeypatch.undo()


def test_other_faults_of_the_disk(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any other fault is told by its words."""
    with Path(os.devnull).open("rb", buffering=0) as unwritable:
        monkeypatch.setattr(spool, "_file", unwritable)
        with pytest.raises(StorageError):
            spool.restart()
        monkeypatch.undo()


def test_no_folder_for_the_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A TMPDIR that does not exist is named."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nothing"))
    with pytest.raises(StorageError, match="set TMPDIR"):
        Spool("a pipe", 1)


def test_standard_input_is_for_the_command_line() -> None:
    """The library has readers for that."""
    with pytest.raises(UsageError, match="open_archive"):
        open_stores(StoreConfig()).source(STANDARD_INPUT)


def download(
    answer: Reply | Callable[[Asked], Reply],
) -> tuple[Pin | None, bytes, list[int | None], int]:
    """Return pin, bytes, told sizes and requests of a download from a server."""
    asked: list[Asked] = []

    def reply(one: Asked) -> Reply:
        asked.append(one)
        return answer if isinstance(answer, Reply) else answer(one)

    sizes: list[int | None] = []
    came = bytearray()
    with HttpServer(reply) as web:
        where = Location("http", web.url.removeprefix("http://"), "a.zip")
        pin = WebSource(WebAccess()).download(where, sizes.append, came.extend)
    return pin, bytes(came), sizes, len(asked)


def test_a_download_is_one_request() -> None:
    """The answer to the first range is the archive, if the server does not know ranges."""
    pin, came, sizes, requests = download(Reply(200, DATA, {"ETag": '"e"'}))
    assert (pin, came, sizes, requests) == (Pin(len(DATA), '"e"'), DATA, [len(DATA)], 1)


def test_no_download_where_ranges_work() -> None:
    """One byte is asked for, nothing is kept."""
    assert download(WebFiles({"a.zip": DATA})) == (None, b"", [], 1)
    assert download(Reply(404, b"")) == (None, b"", [], 1)


def test_a_range_that_makes_no_sense() -> None:
    """A server that answers ranges wrongly is asked once more, for everything."""

    def answer(asked: Asked) -> Reply:
        if "range" in asked.headers:
            return Reply(206, b"x", {"Content-Range": "bytes 0-0/*"})
        return Reply(200, DATA)

    pin, came, _, requests = download(answer)
    assert (came, requests) == (DATA, 2)
    assert pin is not None
    always = Reply(206, b"x", {"Content-Range": "nonsense"})
    assert download(always) == (None, b"", [], 2)


def test_a_download_that_ends_early() -> None:
    """Fewer bytes than declared are a fault of the service, never a short archive."""
    with pytest.raises(ServiceFaultError):
        download(Reply(200, DATA, cut=1_000))
