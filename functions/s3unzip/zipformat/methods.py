"""Names of compression methods, as APPNOTE 4.4.5 numbers them."""

from __future__ import annotations

from s3unzip.zipformat.coding import compression_of

METHODS = {
    0: "Stored",
    1: "Shrunk",
    6: "Imploded",
    8: "Defl",
    9: "Defl64",
    12: "BZip2",
    14: "LZMA",
    93: "Zstd",
    95: "Xz",
    98: "PPMd",
    99: "AES",
}


SUPPORTED_METHODS = frozenset({0, 8, 9, 12, 14, 93, 95})
_UNSUPPORTED_METHODS = {
    1: "shrink", 2: "reduce", 3: "reduce", 4: "reduce", 5: "reduce", 6: "implode",
    10: "IBM TERSE (old)", 16: "IBM CMPSC", 18: "IBM TERSE", 19: "IBM LZ77",
    94: "MP3", 96: "JPEG", 97: "WavPack", 98: "PPMd",
}  # fmt: skip


def show_method(method: int) -> str:
    """Return the name of a method that is not read."""
    return _UNSUPPORTED_METHODS.get(method, "unknown")


def name_method(method: int) -> str:
    """Return the short name of a member's compression, also below encryption."""
    compression = compression_of(method)
    return METHODS.get(compression, str(compression))
