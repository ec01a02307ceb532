"""The errors of the ZIP core."""

from __future__ import annotations

from s3unzip.finding import ArchiveError


class ZipFormatError(ArchiveError):
    """The archive, or one member of it, breaks a rule of the ZIP format or of the policy."""


class RejectedError(ZipFormatError):
    """The central directory is broken or has two meanings: write nothing of this archive."""

    exit_code = 3


class MemberError(ZipFormatError):
    """One member is bad; the other members can still be extracted."""
