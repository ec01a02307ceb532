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
    counts: dict[str, int]  # of differences, by kind
    differences: tuple[Difference, ...]  # the first of each kind, as many as asked for
    bytes_read: int
    requests: Requests
    started: float  # Unix seconds
    seconds: float
