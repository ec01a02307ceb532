"""Names of compression methods, as APPNOTE 4.4.5 numbers them."""

from __future__ import annotations

from s3unzip.zipformat import compression_of

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


def name_method(method: int) -> str:
    """Return the short name of a member's compression, also below encryption."""
    compression = compression_of(method)
    return METHODS.get(compression, str(compression))
