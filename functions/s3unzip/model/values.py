"""Conversion of values to JSON and back: without loss, one value a line."""

from __future__ import annotations

import threading
from typing import TypeVar

import msgspec

from s3unzip.errors import UsageError

T = TypeVar("T")


def encode(value: object) -> bytes:
    """Return `value` as one line of JSON, without the newline."""
    return msgspec.json.encode(value)


# msgspec reads the fields of a type at its first decode. Another thread that decodes the type
# meanwhile sees only some fields, and the process crashes (SIGSEGV, msgspec 0.22).
_preparing = threading.Lock()
_prepared: set[type] = set()


def _prepare(kind: type) -> None:
    with _preparing:
        msgspec.json.Decoder(kind)
        _prepared.add(kind)


def decode(line: bytes | str, kind: type[T]) -> T:
    """Return the `kind` that `line` holds.

    Raises:
        UsageError: `line` is not such a value: another version or a person wrote it.
    """
    if kind not in _prepared:
        _prepare(kind)
    try:
        return msgspec.json.decode(line, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"not a {kind.__name__}: {error}") from error


def decode_lines(data: bytes, kind: type[T]) -> list[T]:
    """Return the `kind` of each line of `data`; twice as fast as a line at a time.

    Raises:
        UsageError: a line is not such a value: another version or a person wrote it.
    """
    if kind not in _prepared:
        _prepare(kind)
    try:
        return msgspec.json.Decoder(kind).decode_lines(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"not lines of {kind.__name__}: {error}") from error
