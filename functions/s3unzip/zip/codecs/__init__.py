"""The decompressors by method (APPNOTE 4.4.5), each bounded in output and memory.

`decode` checks the size, the CRC-32 and the end of a stream.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from s3unzip.zip.codecs.chain import Bzip2
from s3unzip.zip.codecs.deflate import Deflate, Deflate64
from s3unzip.zip.codecs.lzma import Lzma, Xz
from s3unzip.zip.codecs.port import Codec, Stored, StreamError
from s3unzip.zip.codecs.zstd import Zstd
from s3unzip.zip.directory.records import (
    METHOD_BZIP2,
    METHOD_DEFLATE,
    METHOD_DEFLATE64,
    METHOD_LZMA,
    METHOD_STORED,
    METHOD_XZ,
    METHOD_ZSTD,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from s3unzip.zip.member import Member
    from s3unzip.zip.policy import Policy

CODECS: dict[int, Callable[[Member, Policy], Codec]] = {
    METHOD_STORED: Stored,
    METHOD_DEFLATE: Deflate,
    METHOD_DEFLATE64: Deflate64,
    METHOD_BZIP2: Bzip2,
    METHOD_LZMA: Lzma,
    METHOD_ZSTD: Zstd,
    METHOD_XZ: Xz,
}

__all__ = ["CODECS", "Codec", "StreamError"]
