"""What is stored beside a member's bytes: its type and its metadata."""

from __future__ import annotations

import mimetypes
from functools import lru_cache
from typing import TYPE_CHECKING

from s3unzip.model import GzipForm
from s3unzip.objects.globs import compile_glob
from s3unzip.stores.ports import ObjectFacts

if TYPE_CHECKING:
    import re

    from s3unzip.model import Run
    from s3unzip.object_properties import ObjectProperties
    from s3unzip.zip import Member

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
