"""The rows of ``members.jsonl``: one for each selected member, from which the workers work."""

from __future__ import annotations

import itertools
import threading
from typing import TYPE_CHECKING

import msgspec

from s3unzip.errors import InterruptedRunError
from s3unzip.objects.stored import stored_as

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from s3unzip.model import Options
    from s3unzip.planning.cutting import TaskCutter
    from s3unzip.planning.reading import Reading
    from s3unzip.runs.written import WrittenObjects
    from s3unzip.zip import Member

# Rows that are made at a time. From 700 new tuples on, Python's collector would visit them.
ROWS_PIECE = 512


class Gate:
    """Whether rows that another thread makes may be written to their end.

    An object is there when its last piece is written, so there is none of a gate that was closed.
    """

    def __init__(self) -> None:
        self._decided = threading.Event()
        self._is_closed = False

    def open(self) -> None:
        """Let the rows be written."""
        self._decided.set()

    def close(self) -> None:
        """End the making of rows soon, and never let them be written."""
        self._is_closed = True
        self._decided.set()

    def hold(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """Yield `pieces`, and end when the gate is open.

        Raises:
            InterruptedRunError: the gate was closed.
        """
        for piece in pieces:
            self._check()
            yield piece
        self._decided.wait()
        self._check()

    def _check(self) -> None:
        if self._is_closed:
            raise InterruptedRunError("the plan was given up")


def member_lines(
    reading: Reading,
    cutter: TaskCutter,
    options: Options | None = None,
    written: WrittenObjects | None = None,
) -> Iterator[bytes]:
    """Yield the rows of the selected members in pieces, cutting tasks on the way.

    A row is a plain tuple with the fields of a `PlannedMember`: of a million members each
    microsecond is a second.
    """
    members = iter(reading.selected)
    make_rows = _row_maker(reading, options, written)
    encode_rows = msgspec.json.Encoder().encode_lines
    position = 0
    while chunk := list(itertools.islice(members, ROWS_PIECE)):
        piece = encode_rows(make_rows(chunk))  # JSON escapes the newlines of names
        lengths = map(len, piece.splitlines(keepends=True))
        starts = list(itertools.accumulate(lengths, initial=position))
        cutter.add(chunk, starts)
        position = starts[-1]
        yield piece
    cutter.finish(position)


def _row_maker(
    reading: Reading, options: Options | None, written: WrittenObjects | None
) -> Callable[[list[Member]], Iterable[tuple[object, ...]]]:
    """Return a function from members to rows; a key that follows from the path is left out."""
    key_of, plain = reading.template.key_of(), reading.template.plain
    if written and options is not None:
        known, chosen = written, options

        def with_written(member: Member) -> tuple[object, ...]:
            key = key_of(member.path)
            stored = stored_as(member, chosen)
            return member, "" if plain else key, known.digest(key, stored.size, stored.crc32)

        return lambda members: map(with_written, members)
    if plain:
        return zip
    return lambda members: ((member, key_of(member.path)) for member in members)
