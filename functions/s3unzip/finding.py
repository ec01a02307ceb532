"""The finding of a check, and the roots of the error tree.

The ZIP and deflate cores raise these errors. The cores import only this module and `lazy` from the
rest of the package. `errors` shows the whole tree.
"""

from typing import ClassVar, Self

from msgspec import Struct


class Finding(Struct, frozen=True):
    """The finding of a check: a reason code, and a sentence about the particular case.

    `offset` is the byte offset in the archive, and `member` is the member's printable name. Both
    are None if the finding is about the whole archive.
    """

    code: str
    message: str
    offset: int | None = None
    member: str | None = None

    def __str__(self) -> str:
        text = self.code
        if self.member is not None:
            text = f"{self.member!r}: {text}"
        if self.offset is not None:
            text += f" at byte {self.offset}"
        return f"{text}: {self.message}"


class S3UnzipError(Exception):
    """Base class. Any other exception that is raised to a caller of this package is a bug."""

    exit_code: ClassVar[int] = 1
    retryable: ClassVar[bool] = False


class ArchiveError(S3UnzipError):
    """An archive's bytes are wrong; `finding` contains the reason."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(str(finding))
        self.finding = finding

    def __reduce__(self) -> tuple[type[Self], tuple[Finding]]:
        return type(self), (self.finding,)


class ZipFormatError(ArchiveError):
    """The archive, or one member of it, breaks a rule of the ZIP format or of the policy."""


class RejectedError(ZipFormatError):
    """The central directory is broken or has two meanings: write nothing from this archive."""

    exit_code = 3


class MemberError(ZipFormatError):
    """One member is bad; the other members can still be extracted."""


class DeflateError(ArchiveError):
    """The stream is corrupt, or its segments do not join: inflate it as one stream."""


class SegmentRecordError(S3UnzipError):
    """A stored segment cannot be read: it is damaged or was written by another version."""
