"""What a run tolerates: limits, and which checks are only warnings.

The codes themselves are in `checks`; this module decides what a code does.
"""

from __future__ import annotations

from msgspec import Struct, field

from s3unzip.zip.checks import CHECKS, Action

MIB = 1 << 20
GIB = 1 << 30
TIB = 1 << 40


class Limits(Struct, frozen=True):
    """Limits that no archive can change; sizes in bytes.

    `ratio` is for deflate, which cannot exceed 1,032:1, so a higher declared ratio is false.
    Methods without a bound only warn. `decoder_memory` limits the memory that a stream header may
    request: LZMA dictionaries and zstd windows. `parts` limits the files of a split archive, which
    are all named in the input of each worker.

    Reading a directory takes at most about 300 bytes a member, `names_size`
    and twice `folder_memory`, whatever the names are. `names_size` is the
    sum of the kept names in UTF-8: a name that cannot be a key is cut.
    `folder_memory` is for comparing keys with folders and directories with
    each other; past it a clash may be counted twice, and directories that
    are listed twice are no longer counted.
    """

    members: int = 10_000_000
    total_size: int = 5 * TIB
    member_size: int = 5 * TIB
    ratio: int = 1_100
    directory_size: int = 2 * GIB
    key_bytes: int = 1_024
    names_size: int = 1 * GIB
    folder_memory: int = 32 * MIB
    decoder_memory: int = 128 * MIB
    parts: int = 500
    kept_warnings: int = 1_000


class Policy(Struct, frozen=True):
    """What each finding stops.

    `lenient` turns the checks that are matters of choice into warnings: a
    backslash becomes a slash, trailing bytes are ignored, a symbolic link is
    written as its target's text. `encoding` is used for names that neither say
    UTF-8 nor are ASCII; without it they are UTF-8 where valid, else cp437.
    `password` opens encrypted members; without it they fail. It is in no
    representation, so in no log.
    """

    lenient: bool = False
    encoding: str | None = None
    limits: Limits = field(default_factory=Limits)
    password: bytes | None = None

    def __repr__(self) -> str:
        kept = (name for name in self.__struct_fields__ if name != "password")
        return f"Policy({', '.join(f'{name}={getattr(self, name)!r}' for name in kept)})"

    def action(self, code: str) -> Action:
        """Return what `code` does under this policy."""
        check = CHECKS[code]
        return check.lenient if self.lenient else check.default

    def tolerates(self, code: str) -> bool:
        """Return whether `code` is only a warning under this policy."""
        return self.action(code) is Action.WARN
