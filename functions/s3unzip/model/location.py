"""Where an object is."""

from __future__ import annotations

from msgspec import Struct


class Location(Struct, frozen=True):
    """One object, or a prefix of them: ``s3://bucket/key``, a path, ``https://host/path``."""

    # s3, file, http or https; stdin: an archive from a pipe; nowhere: a destination without objects
    scheme: str
    bucket: str  # bucket, or host with port; empty for a file
    key: str  # key, absolute path, or path with query

    def __str__(self) -> str:
        if self.scheme in {"file", "nowhere"}:
            return self.key or self.scheme
        if self.scheme == "stdin":
            return "standard input"
        shown = self.public
        return f"{shown.scheme}://{shown.bucket}/{shown.key}"

    @property
    def public(self) -> Location:
        """The location for display, without secrets: a user, the query of a presigned URL."""
        if self.scheme not in {"http", "https"}:
            return self
        path, mark, _ = self.key.partition("?")
        host = self.bucket.rpartition("@")[2]
        return Location(self.scheme, host, path + ("?..." if mark else ""))
