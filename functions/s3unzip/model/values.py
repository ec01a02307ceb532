"""How values go through JSON: without loss, one a line."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from s3unzip.errors import UsageError

T = TypeVar("T")


def encode(value: object) -> bytes:
    """Return `value` as one line of JSON, without the newline."""
    return msgspec.json.encode(value)


def decode(line: bytes | str, kind: type[T]) -> T:
    """Return the `kind` that `line` holds.

    Raises:
        UsageError: `line` is not such a value: another version wrote it, or a hand did.
    """
    try:
        return msgspec.json.decode(line, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"not a {kind.__name__}: {error}") from error
