"""The object of a member: its type, metadata, size, CRC-32 and bytes.

A member is written as it is or as a gzip file. Code that writes objects, or compares them with the
archive, uses this module.
"""

from __future__ import annotations

import mimetypes
import re
import zlib
from functools import lru_cache
from typing import NamedTuple

from isal.isal_zlib import crc32
from msgspec.structs import replace

from s3unzip.errors import Finding, NotFoundError
from s3unzip.model import GzipForm, Options, PlannedMember, Run
from s3unzip.object_properties import ObjectProperties
from s3unzip.planning.select import compile_glob
from s3unzip.stores.ports import Buffer, Destination, ObjectFacts, StoredObject
from s3unzip.zip import (
    PIECE_LENGTH,
    GzipMember,
    Member,
    MemberDecoder,
    OpenedMember,
    Policy,
    decode_whole,
    gzip_length,
)

CRC_KEY = "zip-crc32"  # 8 hex digits: the member's CRC-32 as the directory has it
MTIME_KEY = "mtime"  # Unix seconds
MODE_KEY = "mode"  # Unix permission bits, octal
OWNER_READS = 0o400  # always: some writers give no permission at all, and nobody could read
RUN_KEY = "s3unzip-run"  # the run that wrote the object: of two to the same keys, the last
DEFAULT_TYPE = "application/octet-stream"

# A table of our own, not the machine's /etc/mime.types: the same archive gets
# the same types on a laptop and in a Lambda.
_TYPES = mimetypes.MimeTypes(filenames=())
for _type, _suffix in (
    ("application/gzip", ".gz"),
    ("application/jsonl", ".jsonl"),
    ("application/parquet", ".parquet"),
    ("application/wasm", ".wasm"),
    ("application/yaml", ".yaml"),
    ("application/yaml", ".yml"),
    ("application/zip", ".zip"),
    ("application/zstd", ".zst"),
    ("font/woff2", ".woff2"),
    ("image/avif", ".avif"),
    ("image/webp", ".webp"),
    ("text/javascript", ".js"),
    ("text/javascript", ".mjs"),
    ("text/markdown", ".md"),
):
    _TYPES.add_type(_type, _suffix)
_TYPES.encodings_map.clear()  # "a.json.gz" is gzip, not JSON with an encoding


def content_type(key: str) -> str:
    """Return the media type that the key's suffix stands for."""
    stem, dot, suffix = key.rpartition("/")[2].rpartition(".")
    if not stem.strip("."):  # ".profile" has none
        return DEFAULT_TYPE
    return _type_of(dot + suffix.lower())


@lru_cache(maxsize=4096)  # suffixes come from the archive: bound what is remembered
def _type_of(suffix: str) -> str:
    return _TYPES.guess_type("x" + suffix)[0] or DEFAULT_TYPE


def object_metadata(key: str, member: Member, run: Run) -> ObjectFacts:
    """Return what is stored beside the bytes of `member` under `key`."""
    metadata = {RUN_KEY: run.id}
    if member.declares_crc:
        metadata[CRC_KEY] = f"{member.crc32:08x}"
    if member.mtime is not None:
        metadata[MTIME_KEY] = str(member.mtime)
    if member.mode is not None:
        metadata[MODE_KEY] = f"{member.mode & 0o7777 | OWNER_READS:o}"
    encoding = "gzip" if run.options.as_gzip is GzipForm.ENCODING else None
    chosen = run.options.objects
    if chosen is None:
        return ObjectFacts(content_type(key), metadata, encoding)
    kind = _chosen_type(member.path, chosen) or content_type(key)
    return _with_properties(ObjectFacts(kind, metadata, encoding), chosen)


def marker_metadata(run: Run) -> ObjectFacts:
    """Return what is stored beside the marker: the properties of the run's objects.

    A bucket's policy may refuse objects without them.
    """
    facts = ObjectFacts("application/json", {})
    chosen = run.options.objects
    return facts if chosen is None else _with_properties(facts, chosen)


def _with_properties(facts: ObjectFacts, chosen: ObjectProperties) -> ObjectFacts:
    return ObjectFacts(
        facts.content_type,
        chosen.metadata | facts.metadata,
        facts.content_encoding,
        chosen.cache_control,
        chosen.storage_class,
        chosen.tags or None,
    )


def _chosen_type(path: str, chosen: ObjectProperties) -> str | None:
    """Return the type of the first glob that fits a member's path."""
    if not chosen.content_types:
        return None
    globs = _compile_globs(tuple(chosen.content_types))
    fitting = (glob for glob, pattern in globs if pattern.match(path))
    return next((chosen.content_types[glob] for glob in fitting), None)


@lru_cache(maxsize=8)
def _compile_globs(globs: tuple[str, ...]) -> list[tuple[str, re.Pattern[str]]]:
    return [(glob, compile_glob(glob)) for glob in globs]


class Stored(NamedTuple):
    """An object as it should be: its length, and the CRC-32 of the content in `zip-crc32`."""

    size: int
    crc32: int | None  # None: the archive does not declare it (AES of version AE-2)

    def is_same(self, found: StoredObject | None) -> bool:
        """Return whether size and CRC-32 prove that an object is the member."""
        return (
            found is not None
            and self.crc32 is not None
            and (found.size, found.crc32) == (self.size, self.crc32)
        )


def stored_as(member: Member, options: Options) -> Stored:
    """Return what the object of `member` is in a run with `options`."""
    return Stored(stored_size(member, options), member.crc32 if member.declares_crc else None)


def stored_size(member: Member, options: Options) -> int:
    """Return the length of the object of `member`."""
    if options.as_gzip is None:
        return member.size
    return gzip_length(member)


def open_content(
    member: Member, policy: Policy, opened: OpenedMember, options: Options
) -> MemberDecoder | GzipMember:
    """Return what turns the member's data into its object.

    Its `crc32` and its `warnings` are known, and its bytes are known to be right, once all of them
    were yielded.
    """
    if options.as_gzip is None:
        return MemberDecoder(member, policy, opened)
    return GzipMember(member, policy, opened, trust_crc=options.trust_crc)


def decode_small(
    member: Member,
    data: memoryview,
    policy: Policy,
    opened: OpenedMember,
    options: Options,
    warnings: list[Finding],
) -> tuple[Buffer, int]:
    """Return a small member's object and the CRC-32 of its content; add to `warnings`."""
    if options.as_gzip is None:
        body = decode_whole(member, data, policy, opened, warnings)
        return body, member.crc32 if member.declares_crc else crc32(body)
    content = open_content(member, policy, opened, options)
    body = b"".join(content.decode([data]))
    warnings += content.warnings
    return body, content.crc32


def read_stored(destination: Destination, key: str, *, is_gzip: bool) -> StoredObject | None:
    """Read an object; return it with the CRC-32 of its content, None if it does not exist.

    The CRC-32 is None if the object should be a gzip file and is none.
    """
    size = crc = 0
    content = _GzipCrc() if is_gzip else None
    try:
        for piece in destination.read(key):
            size += len(piece)
            if content is None:
                crc = crc32(piece, crc)
            else:
                content.feed(piece)
    except NotFoundError:
        return None
    return StoredObject(key, size, crc if content is None else content.crc32)


class _GzipCrc:
    """The CRC-32 of what a gzip file holds, None if it is none; memory is bounded."""

    def __init__(self) -> None:
        self._stream = zlib.decompressobj(wbits=31)
        self._crc = 0
        self._broken = False

    def feed(self, piece: Buffer) -> None:
        """Take the next bytes of the object."""
        data: Buffer = piece
        while data and not self._broken:
            try:
                output = self._stream.decompress(data, PIECE_LENGTH)
            except zlib.error:
                self._broken = True
                return
            self._crc = crc32(output, self._crc)
            self._broken = bool(self._stream.unused_data)
            data = self._stream.unconsumed_tail

    @property
    def crc32(self) -> int | None:
        """Of all that was fed."""
        return None if self._broken or not self._stream.eof else self._crc


def with_crc(row: PlannedMember, crc: int) -> PlannedMember:
    """Return `row` with the CRC-32 of its content, now that it is known."""
    member = row.member
    return row if member.declares_crc else replace(row, member=member.with_crc(crc))
