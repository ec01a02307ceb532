"""The registry of checks: every reason and warning code, its phase and its default.

The numbers are those of the checks a hardened extractor makes; one check may
have several codes. What a run does about a code is decided by `Policy`; how a
check is made is in the module that makes it. Check 55 belongs to the source
adapters and is only registered here.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Phase(Enum):
    """What must have been read for the check to speak."""

    INDEX = "index"
    LOCAL = "local"
    DATA = "data"
    KEY = "key"
    SOURCE = "source"


class Action(Enum):
    """What follows from a finding."""

    REJECT = "reject"
    MEMBER = "member"
    WARN = "warn"


class Check(NamedTuple):
    """One code: its check's number, when it is seen, what it does, what it means.

    `lenient` is what the code does under a lenient policy; it differs from
    `default` only for the choices a project may make otherwise.
    """

    code: str
    number: int
    phase: Phase
    default: Action
    lenient: Action
    summary: str

    @property
    def is_policy(self) -> bool:
        """Whether a lenient policy turns the code into a warning."""
        return self.lenient is not self.default


_I, _L, _D, _K = Phase.INDEX, Phase.LOCAL, Phase.DATA, Phase.KEY
_R, _M, _W = Action.REJECT, Action.MEMBER, Action.WARN

# code, number, phase, default, action when lenient (None: as by default), summary
_ROWS: tuple[tuple[str, int, Phase, Action, Action | None, str], ...] = (
    ("no-eocd", 1, _I, _R, None, "no end of central directory record: not a ZIP, or cut short"),
    ("trailing-data", 2, _I, _R, _W, "bytes after the end record and its comment"),
    ("eocd-comment-truncated", 3, _I, _R, None, "the archive comment runs past the end"),
    ("eocd-signature-in-comment", 4, _I, _R, None, "an end record inside the archive comment"),
    ("multiple-eocd", 4, _I, _R, None, "two end records that both end with the archive"),
    ("multi-disk", 5, _I, _R, None, "the archive is one part of a split set"),
    ("count-mismatch", 6, _I, _R, None, "the directory holds another number of members"),
    ("cd-size", 7, _I, _R, None, "the directory is too short for the members declared"),
    ("cd-truncated", 7, _I, _R, None, "the directory ends inside a header"),
    ("cd-bad-signature", 7, _I, _R, None, "a directory header without its signature"),
    ("cd-trailing-bytes", 7, _I, _R, None, "bytes in the directory after its last header"),
    ("cd-out-of-bounds", 8, _I, _R, None, "the directory does not fit before the end record"),
    ("gap-before-eocd", 9, _I, _R, None, "bytes between the directory and the end record"),
    ("cd-ambiguous", 10, _I, _R, None, "a directory both at the declared and the adjusted place"),
    ("stacked-archive", 11, _I, _R, None, "the bytes before the archive hold a ZIP of their own"),
    (
        "prefix-unadjusted",
        12,
        _I,
        _W,
        None,
        "bytes before the archive that its offsets do not count",
    ),
    ("prefix-adjusted", 12, _I, _W, None, "bytes before the first member"),
    ("zip64-locator-mismatch", 13, _I, _R, None, "the ZIP64 locator points elsewhere"),
    (
        "zip64-locator-missing",
        13,
        _I,
        _R,
        None,
        "the end record needs ZIP64, but there is no locator",
    ),
    ("zip64-record-size", 14, _I, _R, None, "the ZIP64 end record does not end at its locator"),
    ("zip64-locator-gap", 14, _I, _R, None, "bytes between the ZIP64 locator and the end record"),
    ("multiple-zip64-eocd", 14, _I, _R, None, "a second ZIP64 end record"),
    ("zip64-extensible-data", 15, _I, _R, _W, "extensible data in the ZIP64 end record"),
    ("zip64-eocd-mismatch", 16, _I, _R, None, "the end record and the ZIP64 record disagree"),
    ("zip64-ambiguous", 16, _I, _R, None, "a directory with and without the ZIP64 record"),
    (
        "zip64-extra-missing",
        17,
        _I,
        _M,
        None,
        "a ZIP64 sentinel without its value, and no size either",
    ),
    ("zip64-extra-duplicate", 17, _I, _M, None, "two ZIP64 extra fields"),
    ("zip64-extra-malformed", 17, _I, _M, None, "a ZIP64 extra field too short for its values"),
    ("lfh-zip64-duplicate", 17, _L, _M, None, "two ZIP64 extra fields in the local header"),
    ("member-out-of-bounds", 18, _I, _R, None, "a member does not fit before the directory"),
    ("overlap", 19, _I, _R, None, "two members share bytes"),
    ("too-many-entries", 20, _I, _R, None, "more members than the limit allows"),
    ("cd-too-large", 20, _I, _R, None, "a larger directory than the limit allows"),
    ("names-too-large", 20, _I, _R, None, "longer names in all than the limit allows"),
    ("bomb-total", 21, _I, _R, None, "the declared sizes add up to more than the limit"),
    ("bomb-member-size", 21, _I, _M, None, "a member declares more than the limit"),
    ("bomb-ratio", 21, _I, _M, None, "a member declares more than its method can hold"),
    ("high-ratio", 21, _I, _W, None, "a method without a bound declares a very high ratio"),
    ("cd-extra-malformed", 22, _I, _M, None, "an extra field longer than its block"),
    ("lfh-extra-malformed", 22, _L, _W, None, "an extra field longer than its local block"),
    ("extra-trailing-bytes", 22, _I, _W, None, "one to three stray bytes after the extra fields"),
    ("duplicate-name", 23, _K, _R, _M, "two members with one key"),
    ("dup-directory", 23, _K, _W, None, "one directory listed twice"),
    ("case-collision", 24, _K, _W, None, "two keys that differ only in case"),
    ("unicode-collision", 24, _K, _W, None, "two keys equal under Unicode normalisation"),
    ("file-dir-prefix-conflict", 24, _K, _W, None, "a key that is also another key's folder"),
    ("name-dotdot", 25, _K, _M, None, "a '..' segment"),
    ("name-absolute", 26, _K, _M, None, "a leading slash"),
    ("name-drive-letter", 26, _K, _M, None, "a drive letter"),
    ("name-backslash", 27, _K, _M, _W, "a backslash where APPNOTE wants a slash"),
    ("name-nul", 28, _K, _M, None, "a NUL in the name"),
    ("name-control-char", 28, _K, _M, _W, "a character that XML 1.0 listings cannot hold"),
    ("name-combining-run", 28, _K, _M, _W, "more than 30 combining marks in a row"),
    ("name-empty", 29, _K, _M, None, "no name is left to write"),
    ("name-bad-utf8", 30, _K, _M, None, "the name says UTF-8 and is not"),
    ("name-encoding-guess", 31, _K, _W, None, "a name without a declared encoding"),
    ("lfh-flag11-mismatch", 31, _L, _W, None, "only one of the two headers says UTF-8"),
    ("name-undecodable", 31, _K, _M, None, "the name does not fit the encoding asked for"),
    ("unicode-path-used", 32, _I, _W, None, "the name is taken from the Unicode path field"),
    ("unicode-path-stale", 32, _I, _W, None, "a Unicode path field that no longer fits the name"),
    ("unicode-path-duplicate", 32, _I, _R, _W, "two Unicode path fields"),
    ("unicode-path-mismatch", 32, _I, _R, _W, "a UTF-8 name and a Unicode path that differ"),
    ("lfh-unicode-path-mismatch", 32, _L, _M, _W, "the local Unicode path names another file"),
    ("name-dot-normalised", 33, _K, _W, None, "a '.' segment was dropped"),
    ("name-empty-component-normalised", 33, _K, _W, None, "an empty segment was dropped"),
    ("key-too-long", 34, _K, _M, None, "the key is longer than S3 takes"),
    ("name-s3-special", 35, _K, _W, None, "a key that some S3 clients cannot address"),
    ("name-reserved", 35, _K, _M, None, "the key of the run's own completion marker"),
    ("name-trailing-space-dot", 35, _K, _W, None, "a space or dot at the edge of a segment"),
    ("encrypted", 36, _I, _M, None, "encrypted without a password, or in a way that is not read"),
    ("encryption-malformed", 36, _I, _M, None, "encryption without its parameters or its header"),
    ("wrong-password", 36, _D, _M, None, "the password does not open the member"),
    ("unsupported-method", 37, _I, _M, None, "a compression method that is not read"),
    ("patch-data", 37, _I, _M, None, "compressed patch data"),
    ("version-needed", 37, _I, _W, None, "a version of the format that does not exist"),
    ("symlink", 38, _I, _M, _W, "a symbolic link"),
    ("device", 39, _I, _M, None, "a device or socket"),
    ("fifo-mode", 39, _I, _W, None, "FIFO mode bits: written by zip reading a pipe"),
    ("dir-with-data", 40, _I, _M, _W, "a directory with bytes of its own"),
    ("dir-attr-without-slash", 40, _I, _W, None, "a directory by its attributes, not by its name"),
    ("lfh-bad-signature", 41, _L, _M, None, "no local header at the member's offset"),
    ("lfh-truncated", 41, _L, _M, None, "the local header is cut short"),
    ("lfh-name-mismatch", 42, _L, _M, None, "the local header names another file"),
    ("lfh-method-mismatch", 43, _L, _M, None, "the local header names another method"),
    ("lfh-size-crc-mismatch", 44, _L, _M, None, "the local header has other sizes or CRC"),
    ("lfh-encryption-mismatch", 45, _L, _M, None, "only one of the two headers says encrypted"),
    ("dd-mismatch", 46, _L, _M, None, "the data descriptor disagrees with the directory"),
    ("dd-missing-signature", 46, _L, _W, None, "a data descriptor without its signature"),
    ("lfh-flag3-mismatch", 46, _L, _W, None, "only one of the two headers announces a descriptor"),
    ("hidden-local-header", 47, _L, _W, None, "a local header that the directory does not list"),
    ("stored-size-mismatch", 48, _I, _M, None, "stored, but compressed and real size differ"),
    ("size-overrun", 49, _D, _M, None, "the data is longer than declared"),
    ("stream-truncated", 50, _D, _M, None, "the compressed stream ends early"),
    ("size-mismatch", 50, _D, _M, None, "the data is shorter than declared"),
    ("compressed-trailing-bytes", 51, _D, _M, _W, "bytes after the end of the compressed stream"),
    ("crc-mismatch", 52, _D, _M, None, "the data's CRC-32 is not the declared one"),
    ("aes-mac-mismatch", 52, _D, _M, None, "the AES authentication code is not that of the bytes"),
    ("corrupt-stream", 53, _D, _M, None, "the decoder cannot read the stream"),
    ("memory-bound", 54, _D, _M, None, "the stream asks for more decoder memory than allowed"),
    ("source-changed", 55, Phase.SOURCE, _R, None, "the archive changed while it was read"),
)

CHECKS: dict[str, Check] = {
    code: Check(code, number, phase, default, lenient or default, summary)
    for code, number, phase, default, lenient, summary in _ROWS
}
