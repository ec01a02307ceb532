"""The Python API: archives, their members, and runs."""

import cProfile
import csv
import gzip
import io
import mmap
import os
import pickle
import signal
import tempfile
import threading
import tracemalloc
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Any

import fsspec
import pytest

import s3unzip
from s3unzip import Comparison, OnConflict, Options, StoreConfig, Verdict
from s3unzip.api.extraction import find_archives
from s3unzip.errors import (
    ExpiredKeysError,
    MemberError,
    NotFoundError,
    NothingSelectedError,
    RejectedError,
    SourceChangedError,
    StorageError,
    UsageError,
    VerdictError,
)
from s3unzip.model import NestedRun, PlanSummary, Report
from s3unzip.stores.config import parse_destination
from tests.support.account import Account
from tests.support.memory import Told
from tests.support.servers import (
    Asked,
    HttpServer,
    Reply,
    WebFiles,
    looks,
    s3_error,
    set_variables,
)
from tests.support.zips import DEFLATE, Entry, build, seal_aes, with_wrong_crc

LARGE = b"0123456789abcdef" * 200_000  # 3.2 MB: read in ranges, not with one request
RAW = build(
    Entry("a/one.txt", b"one" * 50, DEFLATE),
    Entry("a/old/two.txt", b"two"),
    Entry("dir/"),
    Entry("../evil.txt", b"evil"),
    Entry("large.bin", LARGE),
)
NAMES = ["a/one.txt", "a/old/two.txt", "../evil.txt", "large.bin"]
BROKEN = RAW.replace(LARGE[:16], b"0123456789abcdeF", 1)
SEALED = build(seal_aes(Entry("secret.txt", b"secret", DEFLATE), b"pa55"))


def _open(raw: bytes = RAW, options: Options | None = None) -> s3unzip.Archive:
    return s3unzip.open_archive(io.BytesIO(raw), options)


def _files(raw: bytes = RAW) -> fsspec.AbstractFileSystem:
    return fsspec.filesystem("s3unzip", fo=io.BytesIO(raw))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    archive = tmp_path / "a.zip"
    archive.write_bytes(RAW)
    return archive


class Bytes(io.BytesIO):
    """A reader that returns at most 1,000 bytes for each call."""

    def read(self, size: int | None = -1) -> bytes:
        return super().read(min(size or 0, 1_000))


def test_members_in_order_with_their_facts() -> None:
    """Members come in the directory's order; a refused one says why; directories are left out."""
    archive = _open()
    assert [
        (
            one.name,
            one.size,
            one.method,
            one.index,
            one.crc32 is None,
            one.problem and one.problem.code,
        )
        for one in archive.members()
    ] == [
        ("a/one.txt", 150, "Defl", 0, False, None),
        ("a/old/two.txt", 3, "Stored", 1, False, None),
        ("../evil.txt", 4, None, 3, True, "name-dotdot"),
        ("large.bin", len(LARGE), "Stored", 4, False, None),
    ]
    assert (archive["large.bin"].compressed_size, len(archive), archive.refused, archive.size) == (
        len(LARGE),
        4,
        1,
        len(RAW),
    )


def test_a_member_is_streamed() -> None:
    """`stream` yields the content in pieces of at most 1 MiB, however few bytes a reader gives."""
    pieces = list(s3unzip.open_archive(Bytes(RAW))["large.bin"].stream())
    assert (b"".join(pieces), max(map(len, pieces)) <= 1 << 20) == (LARGE, True)


def test_an_archive_is_a_mapping_from_names() -> None:
    """Iteration, `in`, `namelist` and `[]` are about names, as users of `zipfile` expect."""
    archive = _open()
    assert list(archive) == archive.namelist() == list(archive.keys()) == NAMES
    assert ["a/one.txt" in archive, "dir/" in archive, archive.get("no-such"), repr(archive)] == [
        True,
        False,
        None,
        "<Archive reader:///archive: 4 members>",
    ]
    assert archive["a/one.txt"].read() == archive.read("a/one.txt") == b"one" * 50
    # Members and archives can be keys; a member is equal to itself, however it is looked up.
    keys: set[object] = {archive, *archive.infolist()}
    assert [archive in keys, archive["a/one.txt"] in keys, len(keys)] == [True, True, 5]
    assert not keys & {_open(), *_open().values()}


def test_a_member_is_a_file(monkeypatch: pytest.MonkeyPatch, traced: None) -> None:
    """`open` gives a file that can seek; readers of text and of gzip data wrap it.

    It cannot be written, and there is no warning if nobody closes it. A large one takes no memory.
    """
    archive = _open(build(Entry("t.csv", b"name,size\r\na,1\r\nb,2\r\n", DEFLATE)))
    with archive.open("t.csv") as file, io.TextIOWrapper(file, newline="") as text:
        assert [row["size"] for row in csv.DictReader(text)] == ["1", "2"]
    inner = _open(build(Entry("a.gz", gzip.compress(b"inside"))))
    assert gzip.GzipFile(fileobj=inner.open("a.gz")).read() == b"inside"
    monkeypatch.setattr("s3unzip.api.archive.HELD_BYTES", 1000)  # the rest is in a temporary file
    raw = build(Entry("zeros.bin", bytes(32 << 20), DEFLATE))
    tracemalloc.start()
    with _open(raw).open("zeros.bin") as file:
        file.seek(-16, io.SEEK_END)
        assert (file.tell(), file.read()) == ((32 << 20) - 16, bytes(16))
    assert tracemalloc.get_traced_memory()[1] < 16 << 20
    assert not any(_open().open(name).writable() for name in ("a/one.txt", "large.bin"))
    monkeypatch.setattr(tempfile, "tempdir", "/no/such/folder")
    with pytest.raises(NotFoundError, match=r"TMPDIR, .*: no such file or folder"):
        _open().open("large.bin")


def test_a_member_that_fails_leaves_no_file_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """The temporary file of `open` is closed at once, also while the caller keeps the error."""
    monkeypatch.setattr("s3unzip.api.archive.HELD_BYTES", 1000)
    archive = _open(build(with_wrong_crc("bad.bin", bytes(9_999))))
    before = len([*Path("/dev/fd").iterdir()])
    with pytest.raises(MemberError, match="crc-mismatch") as caught:
        archive.open("bad.bin")
    assert (len([*Path("/dev/fd").iterdir()]), caught.tb is None) == (before, False)


@pytest.mark.parametrize(
    ("options", "names"),
    [
        (Options(include=("*.txt",), exclude=("**/two.txt",)), ["a/one.txt", "../evil.txt"]),
        (Options(names=("large.bin",)), ["large.bin"]),
        (Options(limit=1), ["a/one.txt"]),
    ],
)
def test_options_select_members(options: Options, names: list[str]) -> None:
    """Include, exclude, names and limit select, for refused members too."""
    assert list(_open(RAW, options)) == names


def test_a_glob_without_a_member_is_a_warning() -> None:
    """Whoever opens the archive hears of it."""
    warnings: list[str] = []
    s3unzip.open_archive(io.BytesIO(RAW), Options(include=("*.txt", "*.csv")), warn=warnings.append)
    assert warnings == ["no member matches '*.csv'"]


CLOSED = io.BytesIO(RAW)
CLOSED.close()
DICT: Any = {"members": 2}  # as from a file of JSON
REFUSED: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "no ZIP": (lambda: _open(b"not a zip"), RejectedError, "no-eocd"),
    "too many members": (
        lambda: s3unzip.open_archive(io.BytesIO(RAW), limits=s3unzip.Limits(members=2)),
        RejectedError,
        "too-many-entries",
    ),
    "a reader that cannot seek": (
        lambda: s3unzip.open_archive(CLOSED),
        StorageError,
        "cannot seek",
    ),
    "bytes": (
        lambda: s3unzip.open_archive(RAW),  # type: ignore[arg-type]  # a mistake of users
        UsageError,
        r"not bytes; to pass bytes, wrap them in io\.BytesIO",
    ),
    "no path": (lambda: s3unzip.open_archive("a\0.zip"), UsageError, "no path has a NUL"),
    "a text file": (
        lambda: s3unzip.open_archive(io.StringIO("PK")),  # type: ignore[arg-type]  # as above
        UsageError,
        "not StringIO",
    ),
    "no requests at all": (
        lambda: s3unzip.verify("a.zip", "out", at_once=0),
        UsageError,
        "at_once must be at least 1",
    ),
    "verifying with a reader": (
        lambda: s3unzip.verify(CLOSED, "out"),  # type: ignore[arg-type]  # as above
        UsageError,
        "not a BytesIO",
    ),
    "no archive": (
        lambda: fsspec.filesystem("s3unzip"),
        UsageError,
        "no archive is named; use s3unzip://MEMBER::ARCHIVE",
    ),
    "a dict as options": (
        lambda: s3unzip.open_archive(io.BytesIO(RAW), DICT),
        UsageError,
        r"options: give an s3unzip\.Options\(\.\.\.\), not a dict",
    ),
    "a dict as limits": (
        lambda: s3unzip.open_archive(io.BytesIO(RAW), limits=DICT),
        UsageError,
        "limits: give an s3unzip.Limits",
    ),
    "a dict as stores": (
        lambda: s3unzip.extract("a.zip", "out", stores=DICT),
        UsageError,
        "stores: give an s3unzip.StoreConfig",
    ),
    "a number as password": (
        lambda: s3unzip.open_archive(io.BytesIO(RAW), password=1234),  # type: ignore[arg-type]  # as above
        UsageError,
        "password: give text or bytes, not a int",
    ),
    "a text as limit": (
        lambda: s3unzip.open_archive(io.BytesIO(RAW), limits=s3unzip.Limits(members="2")),  # type: ignore[arg-type]  # as above
        UsageError,
        "limits: all values must be numbers: .*members='2'",
    ),
    "a text as a number of requests": (
        lambda: s3unzip.verify("a.zip", "out", at_once="8"),  # type: ignore[arg-type]  # as above
        UsageError,
        "at_once: give a whole number, not a str",
    ),
    "a name that nobody has": (
        lambda: _open(RAW, Options(names=("nobody",))),
        NothingSelectedError,
        "no member is called 'nobody'",
    ),
    "a key": (lambda: _open()["no-such"], KeyError, "no such member"),
    "a name with a mistake": (
        lambda: _open().read("a/one.tx"),
        NotFoundError,
        r"near: 'a/one\.txt'",
    ),
    "a refused member": (lambda: _open().read("../evil.txt"), MemberError, "name-dotdot"),
    "no password": (lambda: _open(SEALED).read("secret.txt"), MemberError, "encrypted"),
    "a broken member": (lambda: _open(BROKEN).open("large.bin"), MemberError, "crc-mismatch"),
    "a number": (lambda: _open()[5], KeyError, "5: no such member"),  # type: ignore[index]  # as above
    "writing": (lambda: _open().open("large.bin", "w"), UsageError, "can only be read"),
    "another check": (
        lambda: _open().open("large.bin", check="never"),  # type: ignore[arg-type]  # as above
        UsageError,
        "must be 'first' or 'last'; it is 'never'",
    ),
    "extracting a reader": (lambda: _open().extractall(), UsageError, "takes a path or a URL"),
    "pickling a reader": (
        lambda: pickle.dumps(_open()),
        TypeError,
        "an open file of this process",
    ),
    "no file": (lambda: _files().open("a/none.txt"), FileNotFoundError, "a/none.txt"),
    "writing a file": (
        lambda: _files().open("a/one.txt", "wb"),
        NotImplementedError,
        "can only be read",
    ),
    "files of no ZIP": (lambda: _files(b"no archive"), RejectedError, "no-eocd"),
    "a broken file": (lambda: _files(BROKEN).cat("large.bin"), MemberError, "crc-mismatch"),
}


@pytest.mark.parametrize("mistake", REFUSED)
def test_mistakes_are_told_in_plain_words(mistake: str) -> None:
    """Users of mappings, of `zipfile` and of fsspec get the errors that they know."""
    call, error, words = REFUSED[mistake]
    with pytest.raises(error, match=words):
        call()


def test_a_reader_that_shrinks_is_a_changed_source() -> None:
    """A reader that has fewer bytes than at first is another archive."""
    file = io.BytesIO(RAW)
    archive = s3unzip.open_archive(file)
    file.truncate(100)
    with pytest.raises(SourceChangedError):
        archive["large.bin"].read()


def test_files_and_urls(path: Path) -> None:
    """The same members come from a path, from mapped memory and from a web server."""
    archive = s3unzip.open_archive(path)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert s3unzip.open_archive(mapped).read("large.bin") == archive.read("large.bin") == LARGE
    with HttpServer(WebFiles({"a.zip": RAW})) as server:
        served = s3unzip.open_archive(f"{server.url}/a.zip?secret=1")
        assert (served.read("large.bin"), "secret" in served.source) == (LARGE, False)
    path.write_bytes(RAW + b" ")
    with pytest.raises(SourceChangedError):
        archive.read("large.bin")


def test_code_of_zipfile_moves_here(path: Path, tmp_path: Path) -> None:
    """`infolist`, `getinfo`, `open` with a mode, `extract`, `extractall`, `close` are as there.

    Members may stand for their names.
    """
    path.write_bytes(build(Entry("a/one.txt", b"one"), Entry("b.txt", b"two")))
    with s3unzip.open_archive(path) as archive, archive.open("b.txt", "r") as file:
        members = archive.infolist()
        assert [member.name for member in members] == archive.namelist()
        assert (archive.getinfo("b.txt").size, file.read()) == (3, b"two")
        assert [*map(archive.read, members), archive.open(members[1], check="last").read()] == [
            b"one",
            b"two",
            b"two",
        ]
        assert archive.extract(members[0], tmp_path / "one") == str(tmp_path / "one/a/one.txt")
        assert archive.extractall(tmp_path / "all", members).extracted == 2
    assert {
        str(file.relative_to(tmp_path)): file.read_bytes() for file in tmp_path.glob("*/**/*.txt")
    } == {
        "one/a/one.txt": b"one",
        "all/a/one.txt": b"one",
        "all/b.txt": b"two",
    }


@pytest.mark.parametrize("folder", ["", "out", "~/out"])
@pytest.mark.parametrize("options", [{}, {"strip_components": 1}, {"as_gzip": "suffix"}])
def test_the_path_of_an_extracted_member_exists(
    folder: str,
    options: dict[str, Any],
    path: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`extract` returns where the file is, for all options and limits, in another folder too."""
    monkeypatch.chdir(tmp_path)
    set_variables(monkeypatch, {"HOME": str(tmp_path / "home"), "S3UNZIP_LIMITS": '{"members": 1}'})
    archive = s3unzip.open_archive(path.name, Options(**options), limits=s3unzip.Limits())
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path / "there")
    assert Path(archive.extract("a/one.txt", folder or None)).stat().st_size
    assert pickle.loads(pickle.dumps(archive)).read("a/one.txt") == b"one" * 50  # noqa: S301 - its own bytes


def test_an_object_of_an_extracted_member(account: Account) -> None:
    """`extract` returns the URL of an object. An endpoint may be of a class that is not `str`."""
    account.client("s3").create_bucket(Bucket="arrivals")
    account.put("a.zip", RAW)
    assert (
        s3unzip.open_archive(
            "s3://arrivals/a.zip", endpoint_url=type("Url", (str,), {})(account.url)
        ).extract("a/one.txt", "s3://arrivals/out")
        == "s3://arrivals/out/a/one.txt"
    )


@pytest.mark.parametrize("newer", [build(Entry("a/one.txt", b"newer")), b"no archive"])
@pytest.mark.parametrize("members", [None, ["large.bin"]])
def test_only_what_was_opened_and_named_is_extracted(
    newer: bytes, members: list[str] | None, path: Path, tmp_path: Path
) -> None:
    """No members are not all members; a newer archive is refused before a member is written."""
    archive = s3unzip.open_archive(path)
    with pytest.raises(NothingSelectedError, match="no members to extract were named"):
        archive.extractall(tmp_path / "out", [])
    with pytest.raises(NothingSelectedError, match="nothing is selected: all"):
        s3unzip.open_archive(path, Options(exclude=("*.bin",))).extractall(
            tmp_path / "out", [archive["large.bin"]]
        )
    path.write_bytes(newer)
    with pytest.raises(SourceChangedError, match="overwritten since it was opened"):
        archive.extractall(tmp_path / "out", members)
    assert not (tmp_path / "out").exists()


def test_extracting_a_broken_member_raises(path: Path, tmp_path: Path) -> None:
    """As with `zipfile` a member that fails is an error; the error says why."""
    path.write_bytes(BROKEN)
    with pytest.raises(VerdictError, match="crc-mismatch"):
        s3unzip.open_archive(path).extract("large.bin", tmp_path / "out")


def test_a_member_is_a_stream_that_is_checked_at_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """With `check="last"` the beginning of a broken member is read, and its end raises.

    Nobody can go on after the error, or after Ctrl-C, as if it were the end. To close it before its
    end ends the threads that read ahead.
    """
    end = RAW.index(LARGE) + len(LARGE)
    with _open(RAW[: end - 1] + b"X" + RAW[end:]).open("large.bin", check="last") as file:
        assert (file.read(16), file.seekable()) == (LARGE[:16], False)
        with pytest.raises(MemberError, match="crc-mismatch"):
            file.read()
        with pytest.raises(ValueError, match="closed"):
            file.read()
    assert _open().open("large.bin", check="last").read() == LARGE
    with _open(build(Entry("pieces.bin", bytes(9 << 20)))).open("pieces.bin", check="last") as file:
        file.read(1)
    assert any("ahead" not in str(threading.enumerate()) for _ in looks())
    stream = s3unzip.open_archive(Bytes(RAW)).open("large.bin", check="last")
    monkeypatch.setattr(Bytes, "read", lambda *_: signal.raise_signal(signal.SIGINT))
    for error in (KeyboardInterrupt, ValueError):
        with pytest.raises(error):
            stream.read()


@pytest.mark.usefixtures("account")
def test_a_read_after_an_outage_is_retried() -> None:
    """An outage that was longer than the retries of one read leaves the next one its own."""
    files = WebFiles({"arrivals/a.zip": RAW})
    replies = iter([None, s3_error(400, "ExpiredToken"), s3_error(503, "SlowDown"), None])
    with HttpServer(lambda asked: next(replies) or files(asked)) as server:
        archive = s3unzip.open_archive("s3://arrivals/a.zip", endpoint_url=server.url)
        with pytest.raises(ExpiredKeysError):
            archive.read("a/one.txt")
        assert archive.read("a/one.txt") == b"one" * 50


def test_an_archive_is_pickled_by_its_place(path: Path) -> None:
    """Another process reads the same version; it says when another version is there."""
    archive = s3unzip.open_archive(path, Options(include=("large.*",)))
    pickled = [pickle.dumps(opened) for opened in (archive, fsspec.filesystem("s3unzip", fo=path))]
    assert pickle.loads(pickled[0]).read("large.bin") == LARGE  # noqa: S301 - its own bytes
    assert pickle.loads(pickle.dumps(archive["large.bin"])).read() == LARGE  # noqa: S301 - its own bytes
    path.write_bytes(RAW + b" ")
    for data in pickled:
        with pytest.raises(SourceChangedError, match="overwritten since it was opened"):
            pickle.loads(data)  # noqa: S301 - its own bytes


def test_a_presigned_archive_is_opened_again(tmp_path: Path) -> None:
    """A run and a pickle have the query of the URL, and its user and password."""
    files = WebFiles({"a.zip": RAW})

    def serve(asked: Asked) -> Reply:
        if asked.path.endswith("?sig=1") and "authorization" in asked.headers:
            return files(asked)
        return Reply(HTTPStatus.FORBIDDEN)

    with HttpServer(serve) as server:
        archive = s3unzip.open_archive(
            f"{server.url.replace('://', '://user:password@')}/a.zip?sig=1",
            Options(include=("large.*",)),
        )
        assert archive.extractall(tmp_path).extracted == 1
        assert pickle.loads(pickle.dumps(archive)).read("large.bin") == LARGE  # noqa: S301 - its own bytes


def test_an_addressing_style_of_boto3(path: Path) -> None:
    """boto3 also has "auto", and a variable that is not set may be an empty string."""
    for style in ("auto", ""):
        archive = s3unzip.open_archive(path, stores=StoreConfig(addressing_style=style))
        assert archive.read("a/one.txt") == b"one" * 50


def test_prefixes_and_globs_of_a_bucket(account: Account) -> None:
    """Other objects are left out; ``*`` stops at a slash, also in a glob without a folder."""
    account.client("s3").create_bucket(Bucket="arrivals")
    for key in ("in/a.zip", "in/sub/B.ZIP", "in/c.txt", "other.zip"):
        account.put(key, b"12345")
    config = StoreConfig(endpoint_url=account.url)
    assert {
        word: [one.key for one in find_archives([f"s3://arrivals{word}"], config)]
        for word in ("/in/", "", "/*.zip", "/in/*.zip", "/*/**.ZIP")
    } == {
        "/in/": ["in/a.zip", "in/sub/B.ZIP"],
        "": ["in/a.zip", "in/sub/B.ZIP", "other.zip"],
        "/*.zip": ["other.zip"],
        "/in/*.zip": ["in/a.zip"],
        "/*/**.ZIP": ["in/sub/B.ZIP"],
    }
    with pytest.raises(NotFoundError, match="s3://arrivals/none/: no archive is there"):
        find_archives(["s3://arrivals/none/"], config)


def test_a_chained_url_opens_a_member(path: Path) -> None:
    """A URL names the member and the archive, in whatever place fsspec can open."""
    memory = fsspec.filesystem("memory")
    memory.pipe("/place/a.zip", RAW)
    memory.pipe("/place/b.zip", build(Entry("a.zip", RAW)))
    for archive in (
        str(path),
        f"file://{path}",
        "memory://place/a.zip",
        "zip://a.zip::memory://place/b.zip",
    ):
        with fsspec.open(f"s3unzip://a/one.txt::{archive}", "rt") as file:
            assert file.read() == "one" * 50
        files = fsspec.filesystem("s3unzip", fo=archive, asynchronous=True)  # as zarr does
        assert files.cat("a/one.txt") == b"one" * 50
    # The name tells the file system of tar how a member is compressed.
    raw = build(Entry("a.tar.gz", gzip.compress(bytes(1024))))
    assert fsspec.filesystem("tar", fo=_files(raw).open("a.tar.gz")).find("") == []


@pytest.mark.parametrize(
    ("archive", "protocol"), [("S3://shelf/a.zip", None), ("shelf/a.zip", "s3")]
)
def test_the_protocol_of_s3_is_read_here(
    account: Account, archive: str, protocol: str | None
) -> None:
    """In capitals, or beside the bucket and the key, as fsspec names it in a chained URL."""
    account.client("s3").create_bucket(Bucket="shelf")
    account.client("s3").put_object(Bucket="shelf", Key="a.zip", Body=RAW)
    files = fsspec.filesystem(
        "s3unzip", fo=archive, target_protocol=protocol, endpoint_url=account.url
    )
    assert files.cat("a/one.txt") == b"one" * 50


def test_members_are_listed_as_files_and_folders(path: Path) -> None:
    """Folders come of the names; a refused member is no file; globs and ranges work."""
    files = fsspec.filesystem("s3unzip", fo=fsspec.open(str(path)))
    assert [
        *(files.ls(name, detail=False) for name in ("", "/a", "s3unzip://a/one.txt")),
        files.glob("**/*.txt"),
    ] == [
        ["a", "large.bin"],
        ["a/old", "a/one.txt"],
        ["a/one.txt"],
        ["a/old/two.txt", "a/one.txt"],
    ]
    assert files.info("a/one.txt")["size"] == len(files.cat_file("a/one.txt")) == 150
    assert files.cat_file("a/one.txt", 2, 4) == files.cat_file("a/one.txt", -4, -2) == b"eo"
    assert files.modified("a/one.txt").timestamp() == files.info("a/one.txt")["mtime"]
    assert (files.isdir("a/old"), files.exists("evil.txt")) == (True, False)
    assert pickle.loads(pickle.dumps(files)).cat("a/one.txt") == b"one" * 50  # noqa: S301 - its own bytes
    # A folder may have the name of a file.
    same_name = build(Entry("d"), Entry("d/x"), Entry("d-"))
    assert (_files(build()).ls(""), _files(same_name).find("")) == ([], ["d", "d-", "d/x"])
    # A folder is listed without a look at the members of all others.
    profile = cProfile.Profile()
    many = build(*(Entry(f"{number}/a.txt") for number in range(300)))
    assert len(profile.runcall(_files(many).glob, "*/a.txt")) == 300
    assert sum(entry.callcount for entry in profile.getstats()) < 300 * 300


FLAT = Options(key_template="{member}")


@pytest.fixture
def stores(tmp_path: Path) -> StoreConfig:
    return StoreConfig(parse_destination(str(tmp_path / "home")))


def test_extracts_and_verifies(path: Path, tmp_path: Path, stores: StoreConfig) -> None:
    """A run writes the good members, counts the bad one, and verify finds all equal."""
    report = s3unzip.extract(path, tmp_path / "out", FLAT, stores=stores)
    assert (report.extracted, report.failed, report.ok) == (3, 1, False)
    assert (tmp_path / "out/a/one.txt").read_bytes() == b"one" * 50
    with pytest.raises(VerdictError, match="COMPLETED_WITH_ERRORS: 1 failed"):
        report.raise_for_verdict()
    assert repr(report) == (
        f"<Report {report.run}: COMPLETED_WITH_ERRORS, 3 extracted, 0 unchanged, 1 failed>"
    )
    found = s3unzip.verify(path, tmp_path / "out", FLAT, stores=stores)
    assert (found.verdict, found.equal, found.refused, found.bytes_read) == (
        Comparison.EQUAL,
        3,
        1,
        report.bytes_out,
    )


def test_members_are_on_disk_before_the_archive_is_deleted(
    path: Path, tmp_path: Path, stores: StoreConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All files are synced between the last member and the deletion."""
    path.write_bytes(build(Entry("s.txt", b"content")))
    synced: list[tuple[bool, bool]] = []
    monkeypatch.setattr(
        os, "sync", lambda: synced.append(((tmp_path / "out/s.txt").exists(), path.exists()))
    )
    s3unzip.extract(path, tmp_path / "out", FLAT, after_success="delete", stores=stores)
    assert (synced, path.exists()) == ([(True, True)], False)


def test_a_run_tells_what_happens_in_its_order(
    path: Path, tmp_path: Path, stores: StoreConfig
) -> None:
    """Progress has the plan, the report, then the runs of archives inside, and their members."""
    path.write_bytes(build(Entry("b.zip", build(Entry("inside.txt", b"inside")))))
    events: list[object] = []
    progress = Told()
    for name in ("planned", "reported", "nested"):
        setattr(progress, name, events.append)
    s3unzip.extract(
        path,
        tmp_path / "out",
        Options(key_template="{member}", nested_depth=1),
        stores=stores,
        progress=progress,
    )
    assert [type(event) for event in events] == [PlanSummary, Report, NestedRun]
    assert (progress.counts["extracted"], (tmp_path / "out/b/inside.txt").read_bytes()) == (
        2,
        b"inside",
    )


def test_password_is_used_and_not_recorded(path: Path, tmp_path: Path, stores: StoreConfig) -> None:
    """Encrypted members are extracted; the records say only that there was a password."""
    path.write_bytes(build(seal_aes(Entry("s.txt", b"secret"), b"pa55-never-kept")))
    report = s3unzip.extract(
        path, tmp_path / "out", FLAT, password="pa55-never-kept", stores=stores
    )
    assert (report.verdict, report.options.password_ref) == (Verdict.COMPLETED, "argument")
    assert {
        b"pa55-never-kept" in record.read_bytes()
        for record in tmp_path.glob("home/**/*")
        if record.is_file()
    } == {False}


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"include": "readme.txt"}, r"option include: give a list of strings, \('readme.txt',\)"),
        ({"names": "readme.txt"}, "option names: give a list of strings"),
        ({"strip_components": -1}, "option strip_components=-1"),
        ({"on_conflict": "nver"}, "option on_conflict='nver': Invalid enum value"),
        ({"limit": "3"}, "option limit='3'"),
        (
            {"objects": s3unzip.ObjectProperties(tags={"year": 2026})},  # type: ignore[dict-item]
            "objects=.*Expected `str`, got `int`",
        ),
        ({"names": [object()]}, "option names="),
        ({"names": [b"m.txt"]}, "option names=.*Expected `str`, got `bytes`"),
        ({"encoding": "klingon"}, "'klingon' is unknown to Python"),
        ({"key_template": "fixed"}, "gives every member one key"),
        ({"key_template": "}{member}"}, "unknown or broken field"),
    ],
)
def test_options_are_checked_when_they_are_made(wrong: dict[str, object], words: str) -> None:
    """A wrong option is named before anything else happens."""
    with pytest.raises(UsageError, match=words):
        Options(**wrong)  # type: ignore[arg-type]  # as said


def test_options_take_lists_and_texts() -> None:
    """A list is a tuple, and a text is the member of an enumeration."""
    assert Options(include=["*.txt"], on_conflict="never") == Options(  # type: ignore[arg-type]
        include=("*.txt",), on_conflict=OnConflict.NEVER
    )


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"source": io.BytesIO(b"")}, "not a BytesIO: each worker opens the location itself"),
        ({"source": 5}, "not a int: each worker opens the location itself"),
        ({"workers": 0}, "at least 1"),
        ({"source": "s3://bucket/"}, "not an archive"),
        (
            {"options": Options(limit=1), "after_success": "delete"},
            "members that are not extracted would be lost",
        ),
        ({"max_cost": -1.0}, "cost limit"),
        ({"max_cost": "5"}, "^max_cost: give a number, not a str"),
        ({"workers": "2"}, "^workers: give a number, not a str"),
        ({"tuning": {"max_workers": 2}}, r"^tuning: give an s3unzip\.Tuning\(\.\.\.\), not a dict"),
        ({"delete_extra": True}, "^delete_extra: give a function, not a bool"),
        ({"after_success": True}, "'?True'? must be delete or tag=NAME=VALUE"),
        ({"endpoint_url": b"http://host"}, r"endpoint_url: .*got `bytes` - at `\$\.endpoint_url`"),
        (
            {"stores": StoreConfig(destination_owner=111122223333)},  # type: ignore[arg-type]
            "stores or endpoint_url: Expected `str .*, got `int` - at `.*destination_owner`",
        ),
        ({"password": "\ud800"}, "^password: it contains a character that UTF-8 cannot encode"),
        ({"stores": StoreConfig(addressing_style="host")}, "'.*path|virtual.*addressing_style"),
        ({"stores": StoreConfig(put_seconds=-1.0)}, r"Expected `float` > 0.0 - at `\$.put_seconds"),
        (
            {"stores": StoreConfig(unsigned=True, request_payer=True)},
            "give one of them, because S3 must know who pays",
        ),
        (
            {"options": Options(key_template="a/../{name}")},
            "'a/../{name}' leaves the destination's prefix",
        ),
        (
            {"tuning": s3unzip.Tuning(max_workers=0)},
            "'max_workers' must be a positive number, not 0",
        ),
        (
            {"options": Options(include=("*.txt",)), "delete_extra": bool},
            "^delete_extra: leave out include, because",
        ),
        (
            {"options": Options(key_template="{member}"), "delete_extra": bool},
            "^delete_extra: would delete in the whole folder",
        ),
    ],
)
def test_wrong_requests_are_refused_before_work(
    wrong: dict[str, Any], words: str, path: Path, tmp_path: Path, stores: StoreConfig
) -> None:
    """A reader as source, no workers and a negative cost limit write nothing, and no record."""
    with pytest.raises(UsageError, match=words):
        s3unzip.extract(
            **{"source": path, "destination": tmp_path / "out", "stores": stores, **wrong}
        )
    assert [file for file in tmp_path.rglob("*") if file.is_file()] == [path]
