"""The larger corpus: every labelled archive, through the core, the API and the whole pipeline."""

import pytest

from s3unzip.zip import Policy
from tests.corpus.labels import Archive
from tests.corpus.larger import (
    VARIABLE,
    ArchiveLabel,
    compare,
    read_differences,
    read_labels,
)
from tests.corpus.ways import WAYS, extract

LABELS = read_labels()
if not LABELS:
    pytest.skip(
        f"the larger corpus does not lie beside the checkout, and {VARIABLE} names no place",
        allow_module_level=True,
    )

BY_PATH = {label.path: label for label in LABELS}


@pytest.mark.parametrize("way", ["core", "core, cut", "core, byte by byte", "members", "batches"])
@pytest.mark.parametrize("label", LABELS, ids=BY_PATH)
def test_as_labelled(label: ArchiveLabel, way: str) -> None:
    """Outcome, keys, sizes and contents are the labelled ones, or the difference is listed.

    So are they if the core reads small pieces. The batches are those of a whole run: plan, extract
    and report.
    """
    lines = compare(label, WAYS[way](Archive(raw=label.read())))
    assert bool(lines) == (label.path in read_differences()), lines


@pytest.mark.parametrize(
    ("path", "password"),
    [
        ("cpython/inline-DecryptionTests.zip", b"python"),
        ("libarchive/test_read_format_zip_winzip_aes128.zip", b"password"),
        ("libarchive/test_read_format_zip_winzip_aes256.zip", b"password"),
        ("libarchive/test_read_format_zip_winzip_aes256_large.zip", b"password"),
        ("libarchive/test_read_format_zip_winzip_aes256_large_zstd.zip", b"password"),
        ("libarchive/test_read_format_zip_winzip_aes256_stored.zip", b"password"),
        ("libzip/encrypt.zip", b"foo"),
        ("libzip/encrypt_plus_extra.zip", b"foo"),
        ("libzip/encrypt-aes128.zip", b"foofoofoo"),
        ("libzip/encrypt-aes192.zip", b"foofoofoo"),
        ("libzip/encrypt-aes256.zip", b"foofoofoo"),
        ("rubyzip/zip-aes-128.zip", b"password"),
        ("rubyzip/zip-aes-256.zip", b"password"),
        ("sharpcompress/TestArchives_SharpCompress.Encrypted.zip", b"test"),
        ("sharpcompress/Zip.lzma.WinzipAES.zip", b"test"),
        ("stream-unzip/7za_17_4_aes.zip", b"password"),
        ("zip2/aes_archive.zip", b"helloworld"),
        ("node-unzipper/compressed-encrypted_archive.zip", b"abc123"),
        ("jszip/encrypted.zip", b"test"),
    ],
)
def test_archives_of_others(path: str, password: bytes) -> None:
    """Archives that other programs encrypted open with their passwords."""
    raw = BY_PATH[path].read()
    results = [extract(raw, Policy(password=password), step) for step in (None, 997)]
    assert {member.code for one in results for member in one.members.values()} == {None}
    assert {
        member.code for member in extract(raw, Policy(password=password + b"?")).members.values()
    } - {None}
