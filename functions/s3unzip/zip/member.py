"""What is known of one member from the central directory."""

from __future__ import annotations

from typing import NamedTuple


class Member(NamedTuple):
    """One member to extract.

    `index` is its place in the central directory. `path` is the normalised
    name; `raw_name` the name's bytes as declared, or None where they are
    `path` in ASCII. `offset` is the absolute offset of the local header and
    `stop` the bound that nothing of the member may pass: the next listed local
    header, or the directory. `mtime` is Unix seconds (the extended timestamp,
    else the DOS time taken as UTC) and `mode` Unix mode bits, None if unknown.
    """

    index: int  # type: ignore[assignment]  # a field of this name hides tuple.index, as meant
    path: str
    raw_name: bytes | None
    offset: int
    stop: int
    compressed_size: int
    size: int
    crc32: int
    method: int
    flags: int
    mtime: int | None
    mode: int | None

    @property
    def name_bytes(self) -> bytes:
        """The name as the archive holds it."""
        return self.path.encode("ascii") if self.raw_name is None else self.raw_name
