"""The archives that words name, one at a time: from LIST, or from a report of S3 Inventory.

https://docs.aws.amazon.com/AmazonS3/latest/userguide/storage-inventory-location.html describes
``manifest.json``. The files of a report in CSV are compressed with gzip, and the keys in them are
URL-encoded.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import zlib
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote_to_bytes

import msgspec
from msgspec import Struct

from s3unzip.api.several import SUFFIX
from s3unzip.aws.aws_faults import asking
from s3unzip.errors import ServiceFaultError, StorageError, UsageError
from s3unzip.objects.globs import compile_glob

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from mypy_boto3_s3 import S3Client

    from s3unzip.operate.backlog.scope import Scope, Word


class Listing:
    """Lists archives; counts those that the environment does not take."""

    def __init__(self, client: S3Client, scope: Scope) -> None:
        self.outside = 0
        self.first_outside = ""  # an example
        self._client = client
        self._scope = scope

    def keys(self, words: Sequence[Word]) -> Iterator[str]:
        """Yield the keys of the archives that `words` name, as they are listed.

        Objects whose names do not end as those of archives are left out. An inventory is checked
        before the first key is listed.

        Raises:
            UsageError: a word is no manifest of an inventory, or one of another bucket.
            StorageError, ServiceFaultError: something cannot be read.
        """
        sources = [self._open(word) for word in words]
        for word, keys in zip(words, sources, strict=True):
            for key in keys:
                if self._scope.covers(key):
                    yield key
                elif word.is_glob or key.lower().endswith(SUFFIX):
                    self.outside += 1
                    self.first_outside = self.first_outside or key

    def _open(self, word: Word) -> Iterable[str]:
        if not word.is_manifest:
            return self._list(word) if word.is_several else [word.key]
        manifest = read_manifest(self._client, word)
        bucket = self._scope.trigger.bucket
        if manifest.source_bucket != bucket:
            raise UsageError(
                f"{word.text}: is of the bucket {manifest.source_bucket}; the environment "
                f"{self._scope.environment} takes only {self._scope}"
            )
        return list_keys(self._client, word, manifest)

    def _list(self, word: Word) -> Iterator[str]:
        fits = compile_glob(word.key).match if word.is_glob else None
        pages = self._client.get_paginator("list_objects_v2")
        with asking(f"s3:ListBucket of {word.bucket}"):
            for page in pages.paginate(Bucket=word.bucket, Prefix=word.prefix):
                for found in page.get("Contents", ()):
                    key = found["Key"]
                    if not key.endswith("/") and (fits is None or fits(key)):
                        yield key


MAX_MANIFEST = 64 * 1024**2  # bytes
MAX_LINE = 64 * 1024  # bytes; a key has at most 1,024, in a URL three times as many
PIECE = 1024**2
BUCKET_ARN = ":s3:::"


class ManifestFile(Struct, frozen=True):
    """One list of a report."""

    key: str
    md5: str = msgspec.field(name="MD5checksum", default="")  # of the compressed file, in hex


class Manifest(Struct, frozen=True, rename="camel"):
    """``manifest.json`` of a report."""

    source_bucket: str
    destination_bucket: str  # an ARN
    file_format: str
    file_schema: str
    files: tuple[ManifestFile, ...]


class Columns(NamedTuple):
    """Where the columns are that matter; None: the report has no such column."""

    bucket: int
    key: int
    is_latest: int | None
    is_delete_marker: int | None


def read_manifest(client: S3Client, word: Word) -> Manifest:
    """Return the manifest of a report.

    Raises:
        UsageError: it is no manifest, or its lists are not CSV.
        StorageError, ServiceFaultError: it cannot be read.
    """
    data = b"".join(_pieces(client, word.bucket, word.key, MAX_MANIFEST))
    try:
        manifest = msgspec.json.decode(data, type=Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{word.text}: is no manifest of S3 Inventory: {error}") from None
    if manifest.file_format != "CSV":
        raise UsageError(
            f"{word.text}: its lists are {manifest.file_format}, and s3unzip reads CSV: choose CSV "
            "as the output format of the inventory"
        )
    _find_columns(manifest, word)
    return manifest


def list_keys(client: S3Client, word: Word, manifest: Manifest) -> Iterator[str]:
    """Yield the keys of the current objects of a report.

    Raises:
        UsageError: a list is no CSV, or an object is in another bucket.
        StorageError: a list is damaged or not there.
        ServiceFaultError: a list cannot be read now.
    """
    columns = _find_columns(manifest, word)
    bucket = manifest.destination_bucket.rpartition(BUCKET_ARN)[2]
    for file in manifest.files:
        name = f"s3://{bucket}/{file.key}"
        for row in _read_rows(client, bucket, file, name):
            key = _read_row(row, columns, manifest, name)
            if key is not None:
                yield key


def _find_columns(manifest: Manifest, word: Word) -> Columns:
    names = [name.strip() for name in manifest.file_schema.split(",")]
    places = {name: place for place, name in enumerate(names)}
    if not {"Bucket", "Key"} <= places.keys():
        raise UsageError(
            f"{word.text}: its lists have no columns Bucket and Key: {manifest.file_schema!r}"
        )
    return Columns(
        places["Bucket"], places["Key"], places.get("IsLatest"), places.get("IsDeleteMarker")
    )


def _read_row(row: Sequence[str], columns: Columns, manifest: Manifest, name: str) -> str | None:
    """Return the key of a row; None if it is not that of a current object."""
    wanted = max(place for place in columns if place is not None)
    if len(row) <= wanted:
        raise UsageError(f"{name}: a line has {len(row)} columns: {','.join(row)[:100]!r}")
    if row[columns.bucket] != manifest.source_bucket:
        raise UsageError(
            f"{name}: a line is of the bucket {row[columns.bucket][:100]!r}, the report of "
            f"{manifest.source_bucket}"
        )
    if columns.is_latest is not None and row[columns.is_latest].lower() == "false":
        return None
    marker = columns.is_delete_marker
    if marker is not None and row[marker].lower() == "true":
        return None
    try:
        return unquote_to_bytes(row[columns.key].replace("+", " ")).decode()
    except UnicodeDecodeError:
        raise UsageError(f"{name}: a key is not UTF-8: {row[columns.key][:100]!r}") from None


def _read_rows(
    client: S3Client, bucket: str, file: ManifestFile, name: str
) -> Iterator[Sequence[str]]:
    """Yield the rows of a list; at its end, check that it came whole."""
    body = _Body(_pieces(client, bucket, file.key))
    lines = gzip.GzipFile(fileobj=body)
    try:
        yield from csv.reader(_read_lines(lines, name), strict=True)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise StorageError(f"{name}: is not whole: {error}") from None
    except (csv.Error, UnicodeDecodeError) as error:
        raise UsageError(f"{name}: is no CSV: {error}") from None
    if file.md5 and body.md5.hexdigest() != file.md5.lower():
        raise StorageError(f"{name}: its MD5 is not the one of the manifest; is it of this report?")


def _read_lines(lines: gzip.GzipFile, name: str) -> Iterator[str]:
    while line := lines.readline(MAX_LINE):
        if len(line) == MAX_LINE:
            raise UsageError(f"{name}: a line has {MAX_LINE:,} bytes or more")
        yield line.decode()


class _Body(io.RawIOBase):
    """Pieces of an object as a file, and their MD5."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        super().__init__()
        self.md5 = hashlib.md5(usedforsecurity=False)
        self._pieces = pieces
        self._held = b""

    def read(self, size: int = -1, /) -> bytes:
        """Return up to `size` bytes."""
        while not self._held:
            piece = next(self._pieces, None)
            if piece is None:
                return b""
            self.md5.update(piece)
            self._held = piece
        size = len(self._held) if size < 0 else size
        data, self._held = self._held[:size], self._held[size:]
        return data


def _pieces(
    client: S3Client, bucket: str, key: str, max_bytes: int | None = None
) -> Iterator[bytes]:
    """Yield an object in pieces."""
    action = f"s3:GetObject of s3://{bucket}/{key}"
    came = 0
    try:
        with asking(action):
            body: Any = client.get_object(Bucket=bucket, Key=key)["Body"]
            for piece in body.iter_chunks(PIECE):
                came += len(piece)
                if max_bytes is not None and came > max_bytes:
                    raise UsageError(f"s3://{bucket}/{key}: has more than {max_bytes:,} bytes")
                yield piece
    except OSError as error:  # the connection was lost
        raise ServiceFaultError(f"{action}: {error}") from None
