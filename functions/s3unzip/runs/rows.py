"""Rows of the plan: reading them, and the member that the ZIP core knows behind each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s3unzip import run_files
from s3unzip.model import MemberRow, decode
from s3unzip.zipformat import AFTER_LENGTH, Member

if TYPE_CHECKING:
    from s3unzip.model import Run
    from s3unzip.stores.ports import RunStore

# A local header is 30 bytes, a name and an extra field of at most 65,535 each
# (APPNOTE 4.3.7).
MAX_HEADER = 30 + 2 * 65_535


def read_rows(work: RunStore, span: tuple[int, int]) -> list[MemberRow]:
    """Return the rows in bytes [start, stop) of members.jsonl."""
    return [decode(line, MemberRow) for line in work.read(run_files.MEMBERS, span).splitlines()]


def member_of(row: MemberRow, run: Run, bound: int | None = None) -> Member:
    """Return the member that `row` was made from; `bound` in place of its own `stop`."""
    path = row.key[len(run.key_prefix) :] if row.path is None else row.path
    raw = row.raw_name
    if raw is None and not path.isascii():
        raw = path.encode()
    return Member(
        row.index,
        path,
        raw,
        row.offset,
        row.stop if bound is None else bound,
        row.compressed_size,
        row.size,
        row.crc32,
        row.method,
        row.flags,
        row.mtime,
        row.mode,
    )


def stop_of(row: MemberRow) -> int:
    """Return where the bytes end that a small member is judged by; they begin at its offset.

    They hold the member, and `AFTER_LENGTH` bytes of what follows it, if it is so far to
    the next one.
    """
    furthest = row.offset + MAX_HEADER + row.compressed_size + AFTER_LENGTH
    return min(row.stop, furthest)
