"""The command that starts a run again with its options, as a person would type it."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from s3unzip.model import OnConflict, Options

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from s3unzip.model import Report
    from s3unzip.object_properties import ObjectProperties


def repeat_command(report: Report) -> str:
    """Return the command that extracts what is not extracted.

    A password's option may follow. Options of how the stores are reached are not in a report, so
    they are not in the command.
    """
    words = ["s3unzip", "run", str(report.source), str(report.destination)]
    return shlex.join([*words, *_option_words(report.options)])


def _option_words(options: Options) -> Iterator[str]:
    """Yield the words that stand for options; members that are there already are left alone."""
    again = options.on_conflict
    if again is OnConflict.OVERWRITE:
        again = OnConflict.SKIP_UNCHANGED
    yield from ("--on-conflict", again.value)
    if options.key_template != Options().key_template:
        yield from ("--key-template", options.key_template)
    yield from _repeated("--include", options.include)
    yield from _repeated("--exclude", options.exclude)
    yield from _repeated("--member", options.names)
    values = {
        "--strip-components": options.strip_components,
        "--limit": options.limit,
        "--encoding": options.encoding,
        "--as-gzip": options.as_gzip,
        "--nested": options.nested_depth,
    }
    for name, value in values.items():
        if value:
            yield from (name, str(value))
    flags = {
        "--lenient": options.lenient,
        "--trust-crc": options.trust_crc,
        "--marker": options.marker,
    }
    yield from (name for name, is_set in flags.items() if is_set)
    if options.objects is not None:
        yield from _property_words(options.objects)


def _property_words(objects: ObjectProperties) -> Iterator[str]:
    if objects.storage_class is not None:
        yield from ("--storage-class", objects.storage_class)
    if objects.cache_control is not None:
        yield from ("--cache-control", objects.cache_control)
    yield from _repeated("--content-type", _pairs(objects.content_types))
    yield from _repeated("--metadata", _pairs(objects.metadata))
    yield from _repeated("--tag", _pairs(objects.tags))


def _pairs(values: dict[str, str]) -> list[str]:
    return [f"{name}={value}" for name, value in values.items()]


def _repeated(option: str, values: Iterable[str]) -> Iterator[str]:
    for value in values:
        yield from (option, value)
