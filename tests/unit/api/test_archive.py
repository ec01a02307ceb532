"""The Python API: archives, their members, and runs."""

import csv
import io
import os
import pickle
from pathlib import Path

import fsspec
import pytest

import s3unzip
from s3unzip import Comparison, OnConflict, Options, StoreConfig, Verdict
from s3unzip.api.extraction import find_archives
from s3unzip.errors import (
    MemberError,
    NotFoundError,
    NothingSelectedError,
    RejectedError,
    SourceChangedError,
    StorageError,
    UsageError,
    VerdictError,
)
from s3unzip.model import Location, NestedRun, PlanSummary, Report
from s3unzip.stores.config import parse_destination
from tests.support.account import Account
from tests.support.memory import Told
from tests.support.servers import HttpServer, WebFiles
from tests.support.zips import DEFLATE, Entry, build, seal_aes

LARGE = b"0123456789abcdef" * 200_000  # 3.2 MB: read in ranges, not with one request
RAW = build(
    Entry("a/one.txt", b"one" * 50, DEFLATE),
    Entry("dir/"),
    Entry("../evil.txt", b"evil"),
    Entry("large.bin", LARGE),
)


class Bytes(io.BytesIO):
    """A reader that returns at most 1,000 bytes for each call."""

    def read(self, size: int | None = -1) -> bytes:
        return super().read(min(size or 0, 1_000))


def test_members_in_order_with_their_facts() -> None:
    """Members come in the directory's order; a refused one says why; directories are left out."""
    archive = s3unzip.open_archive(io.BytesIO(RAW))
    one, evil, large = archive.members()
    assert (one.name, one.size, one.method, one.index) == ("a/one.txt", 150, "Defl", 0)
    assert evil.problem is not None
    assert evil.problem.code == "name-dotdot"
    assert (evil.method, evil.crc32, evil.index) == (None, None, 2)
    assert (large.size, large.compressed_size, large.problem) == (len(LARGE), len(LARGE), None)
    assert (len(archive), archive.refused, archive.size) == (3, 1, len(RAW))
    with pytest.raises(MemberError, match="name-dotdot"):
        evil.read()


def test_content_is_read_and_streamed() -> None:
    """`read` returns the content, `stream` yields it in pieces of at most 1 MiB."""
    archive = s3unzip.open_archive(Bytes(RAW))
    assert archive["a/one.txt"].read() == b"one" * 50
    pieces = list(archive["large.bin"].stream())
    assert b"".join(pieces) == LARGE
    assert max(map(len, pieces)) <= 1 << 20


def test_an_archive_is_a_mapping_from_names() -> None:
    """Iteration, `in`, `namelist` and `[]` are about names, as users of `zipfile` expect."""
    with s3unzip.open_archive(io.BytesIO(RAW)) as archive:
        names = ["a/one.txt", "../evil.txt", "large.bin"]
        assert list(archive) == archive.namelist() == list(archive.keys()) == names
        assert "a/one.txt" in archive
        assert "dir/" not in archive
        assert archive["../evil.txt"].problem is not None
        assert archive.get("no-such") is None
        assert archive.read("a/one.txt") == b"one" * 50
        assert repr(archive) == "<Archive reader:///archive: 3 members>"
        for kind in (KeyError, NotFoundError):
            with pytest.raises(kind, match="no such member"):
                archive["no-such"]


def test_a_member_is_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """`open` gives a file that can seek, which is read and checked; text readers wrap it."""
    archive = s3unzip.open_archive(
        io.BytesIO(build(Entry("t.csv", b"name,size\r\na,1\r\nb,2\r\n", DEFLATE)))
    )
    with archive.open("t.csv") as file, io.TextIOWrapper(file, newline="") as text:
        assert [row["size"] for row in csv.DictReader(text)] == ["1", "2"]
    monkeypatch.setattr("s3unzip.api.archive.HELD_BYTES", 1000)  # the rest is in a temporary file
    with s3unzip.open_archive(io.BytesIO(RAW)).open("large.bin") as file:
        file.seek(-16, io.SEEK_END)
        assert (file.tell(), file.read()) == (len(LARGE) - 16, LARGE[-16:])
    broken = RAW.replace(LARGE[:16], b"0123456789abcdeF", 1)
    with pytest.raises(MemberError, match="crc-mismatch"):
        s3unzip.open_archive(io.BytesIO(broken)).open("large.bin")


def test_password_opens_encrypted_members() -> None:
    """An encrypted member is read with its password, as bytes or text, and refused without."""
    raw = build(seal_aes(Entry("secret.txt", b"secret", DEFLATE), b"pa55"))
    for password in (b"pa55", "pa55"):
        archive = s3unzip.open_archive(io.BytesIO(raw), password=password)
        assert archive["secret.txt"].read() == b"secret"
    archive = s3unzip.open_archive(io.BytesIO(raw))
    with pytest.raises(MemberError, match="encrypted"):
        archive["secret.txt"].read()


def test_options_select_members() -> None:
    """Include, exclude, names and limit select, for refused members too."""
    archive = s3unzip.open_archive(io.BytesIO(RAW), s3unzip.Options(include=("*.txt",)))
    assert list(archive) == ["a/one.txt", "../evil.txt"]
    archive = s3unzip.open_archive(io.BytesIO(RAW), s3unzip.Options(names=("large.bin",)))
    assert list(archive) == ["large.bin"]
    warnings: list[str] = []
    options = s3unzip.Options(include=("*.txt", "*.csv"))
    s3unzip.open_archive(io.BytesIO(RAW), options, warn=warnings.append)
    assert warnings == ["no member matches '*.csv'"]
    with pytest.raises(NothingSelectedError, match="no member is called 'nobody'"):
        s3unzip.open_archive(io.BytesIO(RAW), s3unzip.Options(names=("nobody",)))


def test_bad_input_is_told_in_plain_words() -> None:
    """No ZIP, too many members, an unknown encoding and a reader that cannot seek."""
    with pytest.raises(RejectedError, match="no-eocd"):
        s3unzip.open_archive(io.BytesIO(b"not a zip"))
    with pytest.raises(RejectedError, match="too-many-entries"):
        s3unzip.open_archive(io.BytesIO(RAW), limits=s3unzip.Limits(members=2))
    with pytest.raises(UsageError, match="'klingon' is unknown to Python"):
        s3unzip.Options(encoding="klingon")
    with pytest.raises(UsageError, match="gives every member one key"):
        s3unzip.Options(key_template="fixed")
    closed = io.BytesIO(RAW)
    closed.close()
    with pytest.raises(StorageError, match="cannot seek"):
        s3unzip.open_archive(closed)


def test_a_reader_that_shrinks_is_a_changed_source() -> None:
    """A reader that has fewer bytes than at first is another archive."""
    file = io.BytesIO(RAW)
    archive = s3unzip.open_archive(file)
    file.truncate(100)
    with pytest.raises(SourceChangedError):
        archive["large.bin"].read()


def test_files_and_urls(tmp_path: Path) -> None:
    """The same members come from a path and from a web server."""
    path = tmp_path / "a.zip"
    path.write_bytes(RAW)
    archive = s3unzip.open_archive(path)
    assert archive["large.bin"].read() == LARGE
    path.write_bytes(RAW + b" ")
    with pytest.raises(SourceChangedError):
        archive["large.bin"].read()
    with HttpServer(WebFiles({"a.zip": RAW})) as server:
        archive = s3unzip.open_archive(f"{server.url}/a.zip?secret=1")
        assert archive["large.bin"].read() == LARGE
        assert "secret" not in archive.source


def test_code_of_zipfile_moves_here(tmp_path: Path) -> None:
    """`infolist`, `getinfo`, `open` with a mode, `extract` and `extractall` are as in `zipfile`."""
    path = tmp_path / "a.zip"
    path.write_bytes(build(Entry("a/one.txt", b"one"), Entry("b.txt", b"two")))
    with s3unzip.open_archive(path) as archive:
        assert [member.name for member in archive.infolist()] == archive.namelist()
        assert archive.getinfo("b.txt").size == 3
        with archive.open("b.txt", "r") as file:
            assert file.read() == b"two"
        with pytest.raises(UsageError, match="can only be read"):
            archive.open("b.txt", "w")
        extracted = Path(archive.extract("a/one.txt", tmp_path / "one"))
        assert extracted == tmp_path / "one/a/one.txt"
        assert extracted.read_bytes() == b"one"
        assert not (tmp_path / "one/b.txt").exists()
        assert archive.extractall(tmp_path / "all").extracted == 2
        assert (tmp_path / "all/b.txt").read_bytes() == b"two"
    with pytest.raises(UsageError, match="takes a path or a URL"):
        s3unzip.open_archive(io.BytesIO(RAW)).extractall(tmp_path)


def test_extracting_a_broken_member_raises(tmp_path: Path) -> None:
    """As with `zipfile` a member that fails is an error; the error says why."""
    path = tmp_path / "a.zip"
    path.write_bytes(RAW.replace(LARGE[:16], b"0123456789abcdeF", 1))
    with pytest.raises(VerdictError, match="crc-mismatch"):
        s3unzip.open_archive(path).extract("large.bin", tmp_path / "out")
    assert not (tmp_path / "out/large.bin").exists()


def test_a_member_is_a_stream_that_is_checked_at_its_end() -> None:
    """With `check="last"` the beginning of a broken member is read, and its end raises."""
    end = RAW.index(LARGE) + len(LARGE)
    broken = RAW[: end - 1] + b"X" + RAW[end:]
    with s3unzip.open_archive(io.BytesIO(broken)).open("large.bin", check="last") as file:
        assert file.read(16) == LARGE[:16]
        assert not file.seekable()
        with pytest.raises(MemberError, match="crc-mismatch"):
            file.read()
    with s3unzip.open_archive(io.BytesIO(RAW)).open("large.bin", check="last") as file:
        assert file.read() == LARGE


def test_an_archive_is_pickled_by_its_place(tmp_path: Path) -> None:
    """Another process reads the same version; it says when another version is there."""
    path = tmp_path / "a.zip"
    path.write_bytes(RAW)
    archive = s3unzip.open_archive(path, s3unzip.Options(include=("large.*",)))
    pickled = pickle.dumps(archive)
    assert pickle.loads(pickled).read("large.bin") == LARGE  # noqa: S301 - its own bytes
    assert pickle.loads(pickle.dumps(archive["large.bin"])).read() == LARGE  # noqa: S301 - its own bytes
    path.write_bytes(RAW + b" ")
    with pytest.raises(SourceChangedError, match="overwritten since it was opened"):
        pickle.loads(pickled)  # noqa: S301 - its own bytes
    with pytest.raises(TypeError, match="an open file of this process"):
        pickle.dumps(s3unzip.open_archive(io.BytesIO(RAW)))


def test_near_names_and_bytes_are_answered() -> None:
    """A name with a mistake gets the near ones; bytes are told to be no file."""
    archive = s3unzip.open_archive(io.BytesIO(RAW))
    with pytest.raises(NotFoundError, match=r"near: 'a/one\.txt'"):
        archive.read("a/one.tx")
    with pytest.raises(UsageError, match=r"not bytes; io\.BytesIO"):
        s3unzip.open_archive(RAW)  # type: ignore[arg-type]  # a mistake of users


def _names(found: list[Location]) -> list[str]:
    return [one.key.rsplit("/", 1)[-1] for one in found]


def test_prefixes_and_globs_of_a_bucket(account: Account) -> None:
    """Keys are listed with their sizes; other objects are left out."""
    account.client("s3").create_bucket(Bucket="arrivals")
    for key in ("in/a.zip", "in/sub/B.ZIP", "in/c.txt", "other.zip"):
        account.put(key, b"12345")
    config = StoreConfig(endpoint_url=account.url)
    assert _names(find_archives(["s3://arrivals/in/"], config)) == ["a.zip", "B.ZIP"]
    assert _names(find_archives(["s3://arrivals"], config)) == ["a.zip", "B.ZIP", "other.zip"]
    assert _names(find_archives(["s3://arrivals/in/*.zip"], config)) == ["a.zip"]
    assert _names(find_archives(["s3://arrivals/*/**.ZIP"], config)) == ["B.ZIP"]
    with pytest.raises(NotFoundError, match="s3://arrivals/none/: no archive is there"):
        find_archives(["s3://arrivals/none/"], config)


ROWS = b"a,b\n1,2\n"
TREE = build(
    Entry("logs/one.csv", ROWS, DEFLATE),
    Entry("logs/old/two.csv", ROWS * 2),
    Entry("../evil.csv", b"evil"),
    Entry("readme", b"text"),
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    archive = tmp_path / "a.zip"
    archive.write_bytes(TREE)
    return archive


def test_a_chained_url_opens_a_member(path: Path) -> None:
    """A URL names the member and the archive, in whatever place fsspec can open."""
    for archive in (str(path), f"file://{path}"):
        with fsspec.open(f"s3unzip://logs/one.csv::{archive}", "rt") as file:
            assert file.read() == ROWS.decode()
    with fsspec.open("memory://place/a.zip", "wb") as file:
        file.write(TREE)
    with fsspec.open("s3unzip://readme::memory://place/a.zip") as file:
        assert file.read() == b"text"


def test_members_are_listed_as_files_and_folders(path: Path) -> None:
    """Folders come of the names; a refused member is no file; globs and ranges work."""
    files = fsspec.filesystem("s3unzip", fo=str(path))
    assert files.ls("", detail=False) == ["logs", "readme"]
    assert files.ls("logs", detail=False) == ["logs/old", "logs/one.csv"]
    assert files.glob("**/*.csv") == ["logs/old/two.csv", "logs/one.csv"]
    assert files.info("logs/one.csv")["size"] == len(ROWS)
    assert files.cat_file("logs/one.csv", 2, 4) == ROWS[2:4]
    assert files.isdir("logs/old")
    assert not files.exists("evil.csv")
    assert pickle.loads(pickle.dumps(files)).cat("readme") == b"text"  # noqa: S301 - its own bytes


def test_mistakes_are_errors_that_users_of_files_know(path: Path) -> None:
    """An absent member is FileNotFoundError; writing is refused; a broken member is not read."""
    files = fsspec.filesystem("s3unzip", fo=str(path))
    with pytest.raises(FileNotFoundError):
        files.open("logs/none.csv")
    with pytest.raises(NotImplementedError, match="can only be read"):
        files.open("readme", "wb")
    with pytest.raises(RejectedError):
        fsspec.filesystem("s3unzip", fo=io.BytesIO(b"no archive"))
    broken = fsspec.filesystem("s3unzip", fo=io.BytesIO(TREE.replace(b"text", b"tEXt")))
    with pytest.raises(MemberError, match="crc-mismatch"):
        broken.cat("readme")


FLAT = Options(key_template="{member}")


@pytest.fixture
def stores(tmp_path: Path) -> StoreConfig:
    return StoreConfig(parse_destination(str(tmp_path / "home")))


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "a.zip"
    inner = build(Entry("inside.txt", b"inside"))
    members = [Entry("one.txt", b"1" * 99, DEFLATE), Entry("in/b.zip", inner), Entry("../x", b"x")]
    path.write_bytes(build(*members))
    return path


class Events(Told):
    """Notes what else it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[str] = []

    def planned(self, plan: PlanSummary) -> None:
        self.events.append(f"planned {plan.selected}")

    def reported(self, report: Report) -> None:
        self.events.append(report.verdict.value)

    def nested(self, run: NestedRun) -> None:
        self.events.append(f"nested {run.verdict}")


def test_extracts_and_verifies(archive: Path, tmp_path: Path, stores: StoreConfig) -> None:
    """A run writes the good members, counts the bad one, and verify finds all equal."""
    report = s3unzip.extract(archive, tmp_path / "out", FLAT, stores=stores)
    assert (report.extracted, report.failed) == (2, 1)
    assert (tmp_path / "out/one.txt").read_bytes() == b"1" * 99
    assert not report.ok
    with pytest.raises(VerdictError, match="COMPLETED_WITH_ERRORS: 1 failed"):
        report.raise_for_verdict()
    assert repr(report) == (
        f"<Report {report.run}: COMPLETED_WITH_ERRORS, 2 extracted, 0 unchanged, 1 failed>"
    )
    found = s3unzip.verify(archive, tmp_path / "out", FLAT, stores=stores)
    assert (found.verdict, found.equal, found.refused) == (Comparison.EQUAL, 2, 1)
    (tmp_path / "out/one.txt").write_bytes(b"2" * 99)
    found = s3unzip.verify(archive, tmp_path / "out", FLAT, stores=stores)
    assert found.counts == {"crc": 1}


def test_members_are_on_disk_before_the_archive_is_deleted(
    tmp_path: Path, stores: StoreConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All files are synced between the last member and the deletion."""
    path = tmp_path / "whole.zip"
    path.write_bytes(build(Entry("s.txt", b"content")))
    synced: list[tuple[bool, bool]] = []
    monkeypatch.setattr(
        os, "sync", lambda: synced.append(((tmp_path / "out/s.txt").exists(), path.exists()))
    )
    s3unzip.extract(path, tmp_path / "out", FLAT, after_success="delete", stores=stores)
    assert synced == [(True, True)]
    assert not path.exists()


def test_archives_inside_are_extracted(archive: Path, tmp_path: Path, stores: StoreConfig) -> None:
    """With `nested_depth` they are extracted, and what happens is told."""
    told, options = Events(), Options(key_template="{member}", nested_depth=1)
    s3unzip.extract(archive, tmp_path / "out", options, stores=stores, progress=told)
    assert told.events == ["planned 2", "COMPLETED_WITH_ERRORS", "nested COMPLETED"]
    assert told.counts["extracted"] == 3
    assert [path.read_bytes() for path in tmp_path.glob("out/**/inside.txt")] == [b"inside"]


def test_password_is_used_and_not_recorded(tmp_path: Path, stores: StoreConfig) -> None:
    """Encrypted members are extracted; the records say only that there was a password."""
    path = tmp_path / "secret.zip"
    path.write_bytes(build(seal_aes(Entry("s.txt", b"secret"), b"pa55-never-kept")))
    report = s3unzip.extract(
        path, tmp_path / "out", FLAT, password="pa55-never-kept", stores=stores
    )
    assert report.verdict is Verdict.COMPLETED
    assert report.options.password_ref == "argument"
    kept = [file.read_bytes() for file in tmp_path.glob("home/**/*") if file.is_file()]
    assert kept
    assert not any(b"pa55-never-kept" in data for data in kept)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"include": "readme.txt"}, r"option include: give a list of texts, \('readme.txt',\)"),
        ({"names": "readme.txt"}, "option names: give a list of texts"),
        ({"strip_components": -1}, "option strip_components=-1"),
        ({"on_conflict": "nver"}, "option on_conflict='nver': Invalid enum value"),
        ({"limit": "3"}, "option limit='3'"),
    ],
)
def test_options_are_checked_when_they_are_made(wrong: dict[str, object], words: str) -> None:
    """A wrong option is named before anything else happens."""
    with pytest.raises(UsageError, match=words):
        Options(**wrong)  # type: ignore[arg-type]  # as said


def test_options_take_lists_and_texts() -> None:
    """A list is a tuple, and a text is the member of an enumeration."""
    made = Options(include=["*.txt"], on_conflict="never")  # type: ignore[arg-type]  # as said
    assert made == Options(include=("*.txt",), on_conflict=OnConflict.NEVER)


def test_wrong_requests_are_refused_before_work(
    archive: Path, tmp_path: Path, stores: StoreConfig
) -> None:
    """A reader as source, no workers and a negative cost limit write nothing."""
    out = tmp_path / "out"
    with pytest.raises(UsageError, match="not a BytesIO: workers cannot share it"):
        s3unzip.extract(io.BytesIO(b""), out)  # type: ignore[arg-type]  # as said
    with pytest.raises(UsageError, match="at least 1"):
        s3unzip.extract(archive, out, stores=stores, workers=0)
    with pytest.raises(UsageError, match="not an archive"):
        s3unzip.extract("s3://bucket/", out, stores=stores)
    with pytest.raises(UsageError, match="members that are not extracted would be lost"):
        s3unzip.extract(archive, out, Options(limit=1), after_success="delete", stores=stores)
    with pytest.raises(UsageError, match="cost limit"):
        s3unzip.extract(archive, out, FLAT, stores=stores, max_cost=-1.0)
    assert [path for path in out.rglob("*") if path.is_file()] == []
