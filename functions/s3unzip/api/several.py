"""Which archives several words name: archives, folders, prefixes and globs."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec.structs import replace

from s3unzip.errors import NotFoundError, UsageError
from s3unzip.extraction.objects import BEYOND
from s3unzip.model import Location, Request
from s3unzip.planning.select import compile_glob, parse_template
from s3unzip.stores.factory import StoreConfig, open_stores
from s3unzip.stores.locations import parse_destination, parse_source
from s3unzip.stores.ports import Stores

GLOB = frozenset("*?[")
SUFFIX = ".zip"


def names_several(word: str) -> bool:
    """Return whether `word` is a folder, a prefix or a glob; nothing is asked of a store."""
    scheme, _, rest = word.partition("://")
    if not word:
        return False
    if not rest:
        return (bool(GLOB & set(word)) and not Path(word).exists()) or Path(word).is_dir()
    key = rest.partition("/")[2]
    return scheme.lower() == "s3" and (not key or key.endswith("/") or bool(GLOB & set(key)))


def find_archives(words: Sequence[str], config: StoreConfig) -> dict[Location, int | None]:
    """Return the archives that `words` name, in their order, and their sizes if they are known.

    A folder or a prefix names all archives in it whose names end in ``.zip`` in any case, however
    deep. In a glob ``*`` does not cross a slash, ``**`` does.

    Raises:
        UsageError: a word is no location.
        NotFoundError: a folder, a prefix or a glob has no archive.
        StorageError, ServiceFaultError: it cannot be listed.
    """
    found: dict[Location, int | None] = {}
    for word in words:
        several = names_several(word)
        some = list(_list(word, config)) if several else [_one(word)]
        if not some:
            raise NotFoundError(f"{word}: {_explain_none(word)}")
        found |= {source: size for source, size in some if source not in found}
    return found


def check_apart(requests: Sequence[Request]) -> None:
    """Refuse archives that would be extracted to the same keys by accident.

    A key template without a field of the archive asks for that; then they may.

    Raises:
        UsageError: two archives have one name.
    """
    known: dict[str, Location] = {}
    for request in requests:
        template = parse_template(request)
        if "{archive" not in request.options.key_template:
            return
        other = known.setdefault(template.prefix, request.source)
        if other != request.source:
            raise UsageError(
                f"{other} and {request.source} would both be extracted to {template.prefix}: give "
                "--key-template '{archive_key}/{member}', or run them one by one"
            )


def _explain_none(word: str) -> str:
    if GLOB & set(word) and not Path(word).is_dir():
        return "no archive matches"
    kind = "prefix" if "://" in word else "folder"
    return f"no archive is there: nothing below this {kind} has a name that ends in {SUFFIX}"


def _one(word: str) -> tuple[Location, int | None]:
    source = parse_source(word)
    if source.scheme != "file":
        return source, None
    try:
        return source, Path(source.key).stat().st_size
    except OSError:  # the run says what is wrong
        return source, None


def _list(word: str, config: StoreConfig) -> Iterator[tuple[Location, int | None]]:
    return _list_objects(word, config) if "://" in word else _list_files(word)


def _list_files(word: str) -> Iterator[tuple[Location, int | None]]:
    folder = Path(word)
    if folder.is_dir():
        paths = sorted(
            Path(top, name)
            for top, _, names in os.walk(folder)
            for name in names
            if name.lower().endswith(SUFFIX)
        )
    else:
        paths = sorted(Path(one) for one in glob.glob(word, recursive=True) if Path(one).is_file())  # noqa: PTH207 - ** of a whole path
    for path in paths:
        yield _one(str(path))


def _list_objects(word: str, config: StoreConfig) -> Iterator[tuple[Location, int | None]]:
    bucket, _, key = word.partition("://")[2].partition("/")
    start = min((key.find(one) for one in GLOB if one in key), default=len(key))
    prefix = parse_destination(f"s3://{bucket}/")
    fits = compile_glob(key).match if start < len(key) else None
    for listed in _reader(config).destination(prefix).list_objects(key[:start], "", BEYOND):
        wanted = fits(listed.key) if fits is not None else listed.key.lower().endswith(SUFFIX)
        if wanted and not listed.key.endswith("/"):
            yield Location("s3", bucket, listed.key), listed.size


def _reader(config: StoreConfig) -> Stores:
    """Return the stores that list where archives are, with the credentials that read them."""
    return open_stores(
        replace(
            config,
            destination_endpoint_url=None,
            destination_region=None,
            destination_profile=None,
            destination_unsigned=config.unsigned,
            destination_owner=None,
            destination_kms_key=None,
        )
    )
