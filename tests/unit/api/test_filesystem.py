"""The file system of fsspec, as pandas, Dask and DuckDB use it."""

import io
import pickle
from pathlib import Path

import fsspec
import pytest

from s3unzip.errors import MemberError, RejectedError
from tests.support.zips import DEFLATE, Entry, build

ROWS = b"a,b\n1,2\n"
RAW = build(
    Entry("logs/one.csv", ROWS, DEFLATE),
    Entry("logs/old/two.csv", ROWS * 2),
    Entry("../evil.csv", b"evil"),
    Entry("readme", b"text"),
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    archive = tmp_path / "a.zip"
    archive.write_bytes(RAW)
    return archive


def test_a_chained_url_opens_a_member(path: Path) -> None:
    """A URL names the member and the archive, in whatever place fsspec can open."""
    for archive in (str(path), f"file://{path}"):
        with fsspec.open(f"s3unzip://logs/one.csv::{archive}", "rt") as file:
            assert file.read() == ROWS.decode()
    with fsspec.open("memory://place/a.zip", "wb") as file:
        file.write(RAW)
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
    broken = fsspec.filesystem("s3unzip", fo=io.BytesIO(RAW.replace(b"text", b"tEXt")))
    with pytest.raises(MemberError, match="crc-mismatch"):
        broken.cat("readme")
