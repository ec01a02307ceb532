"""Names of compression methods, as APPNOTE 4.4.5 numbers them."""

from __future__ import annotations

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
