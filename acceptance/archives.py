"""Archives as streams: generated during the upload, never on disk, never completely in memory."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from boto3.s3.transfer import TransferConfig

from bench.archives import ArchiveLayout
from s3unzip.settings import MIB

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from _typeshed import WriteableBuffer

    from acceptance.contents import Member

# 10,000 parts of 16 MiB are 156 GiB; at most about 14 of them are in memory at once.
TRANSFER = TransferConfig(
    multipart_threshold=16 * MIB, multipart_chunksize=16 * MIB, max_concurrency=4
)
SAMPLES = 5  # members that are read back
SAMPLE_BYTES = 64 * 1024  # maximum of each, at three offsets


class Stretch(NamedTuple):
    """The expected bytes of one object at an offset."""

    name: str  # of the member
    offset: int
    data: bytes


@dataclass(frozen=True)
class Archive:
    """An archive that can be generated many times, each time with the same bytes.

    `members` yields the members in order. `cut` bytes are missing at the end, which breaks the
    archive.
    """

    members: Callable[[], Iterator[Member]]
    count: int
    cut: int = 0

    def pieces(self) -> Iterator[bytes]:
        """Yield the archive's bytes in order."""
        layout = ArchiveLayout()
        for member in self.members():
            yield layout.open_member(member.name, member.content)
            yield from member.content.pieces()
        end = layout.finish()
        yield end[: len(end) - self.cut]

    def samples(self) -> Iterator[Stretch]:
        """Yield expected bytes of some objects: whole small ones, three stretches of large ones."""
        step = max(1, self.count // (SAMPLES - 1))
        for number, member in enumerate(self.members()):
            if number % step and number != self.count - 1:
                continue
            last = max(0, member.size - SAMPLE_BYTES)
            for offset in sorted({0, last // 2, last}):
                yield Stretch(member.name, offset, member.plain(offset, SAMPLE_BYTES))


class PieceReader(io.RawIOBase):
    """A readable file of consecutive pieces; it cannot seek."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._left = memoryview(b"")

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Fill `buffer` from the next piece; 0 at the end."""
        while not self._left:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._left = memoryview(piece)
        target = memoryview(buffer).cast("B")
        count = min(len(target), len(self._left))
        target[:count] = self._left[:count]
        self._left = self._left[count:]
        return count


def upload(client: Any, bucket: str, key: str, archive: Archive) -> None:
    """Upload the archive as one object, in parts if it is large.

    Raises:
        S3UploadFailedError: S3 refuses it; the upload is aborted.
    """
    stream = io.BufferedReader(PieceReader(archive.pieces()), buffer_size=MIB)
    client.upload_fileobj(stream, bucket, key, Config=TRANSFER)
