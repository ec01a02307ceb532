"""What is stored beside a member's bytes."""

import posixpath

import pytest
from hypothesis import example, given, strategies as st

from s3unzip.extraction.member_object import DEFAULT_TYPE, content_type


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("a/b.json", "application/json"),
        ("a/b.JSON", "application/json"),
        ("a.html/b", DEFAULT_TYPE),
        (".json", DEFAULT_TYPE),
        ("a/..json", DEFAULT_TYPE),
        ("a/.b.json", "application/json"),
        ("a.tar.gz", "application/gzip"),
        ("a.tgz", "application/gzip"),
        ("a.csv.bz2", "application/x-bzip2"),
        (
            "a.docx",
            "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
        ),
        ("a.XLSX", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"),
        ("a.odt", "application/vnd.oasis.opendocument.text"),
        ("a.ndjson", "application/x-ndjson"),
        ("a.geojson", "application/geo+json"),
        ("a.toml", "application/toml"),
        ("a.log", "text/plain"),
        ("a.7z", "application/x-7z-compressed"),
        ("a.flac", "audio/flac"),
        ("a.mkv", "video/matroska"),
        ("a.ttf", "font/ttf"),
        # In all versions of Python.
        ("a.md", "text/markdown"),
        ("a.mjs", "text/javascript"),
        ("a.webp", "image/webp"),
        ("a.rtf", "text/rtf"),
        ("a.bmp", "image/bmp"),
        ("a.", DEFAULT_TYPE),
        ("a.unheard-of", DEFAULT_TYPE),
        ("", DEFAULT_TYPE),
    ],
)
def test_a_type_comes_from_the_suffix(key: str, expected: str) -> None:
    """The last suffix of the last segment counts, in any case; a leading dot makes none."""
    assert content_type(key) == expected


@given(st.text(alphabet="./aAjsonhtml", max_size=20))
@example("...json")
@example("a/...html.")
def test_a_suffix_is_what_posix_calls_one(key: str) -> None:
    """A key has the type of its suffix, as `posixpath.splitext` cuts it, and of nothing else."""
    assert content_type(key) == content_type("name" + posixpath.splitext(key)[1])
