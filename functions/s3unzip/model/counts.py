"""Requests to object stores by kind."""

from __future__ import annotations

from msgspec import Struct


class Requests(Struct, frozen=True, omit_defaults=True):
    """Calls to object stores by kind; retries included."""

    get: int = 0
    put: int = 0
    head: int = 0
    list: int = 0
    create: int = 0  # CreateMultipartUpload
    part: int = 0  # UploadPart
    copy: int = 0  # UploadPartCopy
    complete: int = 0
    abort: int = 0
    delete: int = 0  # DeleteObjects
    retries: int = 0  # how many of all these were second and later attempts
    throttled: int = 0  # how many were answered with "slow down"

    @property
    def reads(self) -> int:
        """Requests that AWS prices as GET: https://aws.amazon.com/s3/pricing/."""
        return self.get + self.head

    @property
    def writes(self) -> int:
        """Requests that AWS prices as PUT, COPY, POST or LIST; to abort and delete is free."""
        return self.put + self.create + self.part + self.copy + self.complete + self.list

    def __add__(self, other: Requests) -> Requests:
        return Requests(*(getattr(self, n) + getattr(other, n) for n in Requests.__struct_fields__))

    def __sub__(self, other: Requests) -> Requests:
        return Requests(*(getattr(self, n) - getattr(other, n) for n in Requests.__struct_fields__))
