"""JSON lines: one value a line, written and read in pieces, so that memory is bounded."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from s3unzip.model import decode, encode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

T = TypeVar("T")

PIECE = 1024 * 1024  # bytes of lines that are gathered before they are handed on


def join_lines(values: Iterable[object]) -> Iterator[bytes]:
    """Yield `values` as JSON lines, in pieces that are worth a write."""
    gathered: list[bytes] = []
    pending = 0
    for value in values:
        line = encode(value)
        gathered.append(line)
        pending += len(line) + 1
        if pending >= PIECE:
            yield b"\n".join(gathered) + b"\n"
            gathered.clear()
            pending = 0
    if gathered:
        yield b"\n".join(gathered) + b"\n"


def split_lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Cut a stream of pieces into its lines, empty ones left out; memory: a piece and a line."""
    rest = b""
    for piece in pieces:
        lines = (rest + piece).split(b"\n")
        rest = lines.pop()
        yield from filter(None, lines)
    if rest:
        yield rest


def read_lines(pieces: Iterable[bytes], kind: type[T]) -> Iterator[T]:
    """Yield the value of each line.

    Raises:
        UsageError: a line is not a `kind`.
    """
    for line in split_lines(pieces):
        yield decode(line, kind)
