"""What a verify finds: the values that `verification.archive` returns."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from s3unzip.model import Location, Pin, Requests, Verdict  # noqa: TC001  # msgspec reads


class Kind(StrEnum):
    """How an object differs from its member."""

    MISSING = "missing"
    SIZE = "size"
    CRC = "crc"
    NO_CRC = "no-crc"  # without zip-crc32: somebody else wrote it
    EXTRA = "extra"  # below the run's prefix, and no member's


class Witness(StrEnum):
    """Who says that an object's bytes are the member's; docs/verify.md says what each proves."""

    RECORD = "record"  # the store: the ETag is the one that it answered a run's PUT with
    CHECKSUM = "checksum"  # the store: its own CRC-32 of the bytes is the directory's
    READ = "read"  # this verify: it read the bytes
    METADATA = "metadata"  # whoever wrote the object: its zip-crc32 is the directory's
    SIZE = "size"  # nobody: the archive does not tell the CRC-32 of an AES member (AE-2)


class Judged(Struct, frozen=True, omit_defaults=True):
    """One object and what it was found to be: a line of ``verify --objects``."""

    key: str
    witness: Witness | None = None  # of an object that is equal
    difference: Kind | None = None  # of one that is not


class Difference(Struct, frozen=True, omit_defaults=True):
    """One object that is not as the directory says."""

    key: str
    kind: Kind
    expected: str | None = None
    found: str | None = None


class Verification(Struct, frozen=True):
    """What a verify found."""

    verdict: Verdict
    source: Location
    pin: Pin
    destination: Location
    prefix: str  # of the keys that were listed
    deep: bool  # whether the objects were read
    members: int  # that should be there
    refused: int  # members that no run extracts, by the directory alone
    equal: int
    witnesses: dict[str, int]  # of the equal objects, by who says so
    records: tuple[str, ...]  # runs whose records were used
    counts: dict[str, int]  # of differences, by kind
    differences: tuple[Difference, ...]  # the first of each kind, as many as asked for
    bytes_read: int
    requests: Requests
    started: float  # Unix seconds
    seconds: float
