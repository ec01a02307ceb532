"""The errors of the deflate core."""

from __future__ import annotations

from s3unzip.finding import ArchiveError, S3UnzipError


class DeflateError(ArchiveError):
    """The stream is corrupt, or its segments do not join: inflate it as one stream."""


class SegmentRecordError(S3UnzipError):
    """A stored segment cannot be read: another version wrote it, or it is damaged."""
