"""The registry of checks: every reason and warning code, its phase and its default.

Checks are numbered; one check can have several codes. `Policy` decides what a run does about a
code. The module that makes a check has its details. Check 55 belongs to the source
adapters and the parts of a split archive to the planner: both are only registered here.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from s3unzip.zip.sentences import SENTENCES


class Phase(Enum):
    """Which bytes a check needs."""

    INDEX = "index"
    LOCAL = "local"
    DATA = "data"
    KEY = "key"
    SOURCE = "source"


class Action(Enum):
    """What a finding causes."""

    REJECT = "reject"
    MEMBER = "member"
    WARN = "warn"


class Check(NamedTuple):
    """One code: its check's number, when it is seen, what it does, what it says in a sentence.

    `lenient` is what the code does under a lenient policy; it differs from
    `default` only for the choices a project may make otherwise.
    """

    code: str
    number: int
    phase: Phase
    default: Action
    lenient: Action
    sentence: str

    @property
    def is_policy(self) -> bool:
        """Whether a lenient policy turns the code into a warning."""
        return self.lenient is not self.default


_I, _L, _D, _K = Phase.INDEX, Phase.LOCAL, Phase.DATA, Phase.KEY
_R, _M, _W = Action.REJECT, Action.MEMBER, Action.WARN

# code, number, phase, action, action under a lenient policy
_ROWS: tuple[tuple[str, int, Phase, Action, Action], ...] = (
    ("no-eocd", 1, _I, _R, _R),
    ("trailing-data", 2, _I, _R, _W),
    ("eocd-comment-truncated", 3, _I, _R, _R),
    ("eocd-signature-in-comment", 4, _I, _R, _R),
    ("multiple-eocd", 4, _I, _R, _R),
    ("multi-disk", 5, _I, _R, _R),
    ("part-missing", 5, Phase.SOURCE, _R, _R),
    ("part-wrong", 5, _L, _R, _R),
    ("too-many-parts", 5, _I, _R, _R),
    ("count-mismatch", 6, _I, _R, _R),
    ("cd-size", 7, _I, _R, _R),
    ("cd-truncated", 7, _I, _R, _R),
    ("cd-bad-signature", 7, _I, _R, _R),
    ("cd-trailing-bytes", 7, _I, _R, _R),
    ("cd-out-of-bounds", 8, _I, _R, _R),
    ("gap-before-eocd", 9, _I, _R, _R),
    ("cd-ambiguous", 10, _I, _R, _R),
    ("stacked-archive", 11, _I, _R, _R),
    ("prefix-unadjusted", 12, _I, _W, _W),
    ("prefix-adjusted", 12, _I, _W, _W),
    ("zip64-locator-mismatch", 13, _I, _R, _R),
    ("zip64-locator-missing", 13, _I, _R, _R),
    ("zip64-record-size", 14, _I, _R, _R),
    ("zip64-locator-gap", 14, _I, _R, _R),
    ("multiple-zip64-eocd", 14, _I, _R, _R),
    ("zip64-extensible-data", 15, _I, _R, _W),
    ("zip64-eocd-mismatch", 16, _I, _R, _R),
    ("zip64-ambiguous", 16, _I, _R, _R),
    ("zip64-extra-missing", 17, _I, _M, _M),
    ("zip64-extra-duplicate", 17, _I, _M, _M),
    ("zip64-extra-malformed", 17, _I, _M, _M),
    ("lfh-zip64-duplicate", 17, _L, _M, _M),
    ("member-out-of-bounds", 18, _I, _R, _R),
    ("overlap", 19, _I, _R, _R),
    ("too-many-entries", 20, _I, _R, _R),
    ("cd-too-large", 20, _I, _R, _R),
    ("names-too-large", 20, _I, _R, _R),
    ("bomb-total", 21, _I, _R, _R),
    ("bomb-member-size", 21, _I, _M, _M),
    ("bomb-ratio", 21, _I, _M, _M),
    ("high-ratio", 21, _I, _W, _W),
    ("cd-extra-malformed", 22, _I, _M, _M),
    ("lfh-extra-malformed", 22, _L, _W, _W),
    ("extra-trailing-bytes", 22, _I, _W, _W),
    ("duplicate-name", 23, _K, _R, _M),
    ("dup-directory", 23, _K, _W, _W),
    ("case-collision", 24, _K, _W, _W),
    ("unicode-collision", 24, _K, _W, _W),
    ("file-dir-prefix-conflict", 24, _K, _W, _W),
    ("name-dotdot", 25, _K, _M, _M),
    ("name-absolute", 26, _K, _M, _M),
    ("name-drive-letter", 26, _K, _M, _M),
    ("name-backslash", 27, _K, _M, _W),
    ("name-nul", 28, _K, _M, _M),
    ("name-control-char", 28, _K, _M, _W),
    ("name-combining-run", 28, _K, _M, _W),
    ("name-empty", 29, _K, _M, _M),
    ("name-bad-utf8", 30, _K, _M, _M),
    ("name-encoding-guess", 31, _K, _W, _W),
    ("lfh-flag11-mismatch", 31, _L, _W, _W),
    ("name-undecodable", 31, _K, _M, _M),
    ("unicode-path-used", 32, _I, _W, _W),
    ("unicode-path-stale", 32, _I, _W, _W),
    ("unicode-path-duplicate", 32, _I, _R, _W),
    ("unicode-path-mismatch", 32, _I, _R, _W),
    ("lfh-unicode-path-mismatch", 32, _L, _M, _W),
    ("name-dot-normalised", 33, _K, _W, _W),
    ("name-empty-component-normalised", 33, _K, _W, _W),
    ("key-too-long", 34, _K, _M, _M),
    ("name-s3-special", 35, _K, _W, _W),
    ("name-reserved", 35, _K, _M, _M),
    ("name-trailing-space-dot", 35, _K, _W, _W),
    ("encrypted", 36, _I, _M, _M),
    ("encryption-malformed", 36, _I, _M, _M),
    ("wrong-password", 36, _D, _M, _M),
    ("unsupported-method", 37, _I, _M, _M),
    ("patch-data", 37, _I, _M, _M),
    ("version-needed", 37, _I, _W, _W),
    ("symlink", 38, _I, _M, _W),
    ("device", 39, _I, _M, _M),
    ("fifo-mode", 39, _I, _W, _W),
    ("dir-with-data", 40, _I, _M, _W),
    ("dir-attr-without-slash", 40, _I, _W, _W),
    ("lfh-bad-signature", 41, _L, _M, _M),
    ("lfh-truncated", 41, _L, _M, _M),
    ("lfh-name-mismatch", 42, _L, _M, _M),
    ("lfh-method-mismatch", 43, _L, _M, _M),
    ("lfh-size-crc-mismatch", 44, _L, _M, _M),
    ("lfh-encryption-mismatch", 45, _L, _M, _M),
    ("dd-mismatch", 46, _L, _M, _M),
    ("dd-missing-signature", 46, _L, _W, _W),
    ("lfh-flag3-mismatch", 46, _L, _W, _W),
    ("hidden-local-header", 47, _L, _W, _W),
    ("stored-size-mismatch", 48, _I, _M, _M),
    ("size-overrun", 49, _D, _M, _M),
    ("stream-truncated", 50, _D, _M, _M),
    ("size-mismatch", 50, _D, _M, _M),
    ("compressed-trailing-bytes", 51, _D, _M, _W),
    ("crc-mismatch", 52, _D, _M, _M),
    ("aes-mac-mismatch", 52, _D, _M, _M),
    ("corrupt-stream", 53, _D, _M, _M),
    ("memory-bound", 54, _D, _M, _M),
    ("source-changed", 55, Phase.SOURCE, _R, _R),
)

CHECKS: dict[str, Check] = {
    code: Check(code, number, phase, default, lenient, SENTENCES[code])
    for code, number, phase, default, lenient in _ROWS
}
