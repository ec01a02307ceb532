"""The results of a verify: the values that `verification.verifying` returns."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from s3unzip.model import Location, Pin, Requests  # msgspec reads


class Comparison(StrEnum):
    """Whether the objects are what the archive's directory declares."""

    EQUAL = "EQUAL"
    DIFFERENT = "DIFFERENT"

    @property
    def exit_code(self) -> int:
        """The exit code of ``s3unzip verify``."""
        return 0 if self is Comparison.EQUAL else 1


class Kind(StrEnum):
    """How an object differs from its member."""

    MISSING = "missing"
    SIZE = "size"
    CRC = "crc"
    NO_CRC = "no-crc"  # without zip-crc32: somebody else wrote it
    EXTRA = "extra"  # below the run's prefix, but not the key of a member


class Witness(StrEnum):
    """The evidence for an object's bytes; docs/howto/verify.md says what each proves."""

    RECORD = "record"  # the store: the ETag equals the one that the store returned for a run's PUT
    CHECKSUM = "checksum"  # the store: its own CRC-32 of the bytes is the directory's
    READ = "read"  # this verify, which read the bytes
    METADATA = "metadata"  # the writer of the object: its zip-crc32 is the directory's
    SIZE = "size"  # nothing: the archive does not declare the CRC-32 of an AES member (AE-2)


class Judged(Struct, frozen=True, omit_defaults=True):
    """One object and its result: a line of ``verify --objects``."""

    key: str
    witness: Witness | None = None  # set for an equal object
    difference: Kind | None = None  # set for a different object


class Difference(Struct, frozen=True, omit_defaults=True):
    """One object that differs from the directory."""

    key: str
    kind: Kind
    expected: str | None = None
    found: str | None = None


class Verification(Struct, frozen=True):
    """The result of a verify."""

    verdict: Comparison
    source: Location
    pin: Pin
    destination: Location
    prefix: str  # prefix of the listed keys
    deep: bool  # whether the objects were read
    members: int  # objects that should exist
    refused: int  # members that no run extracts, because the directory refuses them
    equal: int
    witnesses: dict[str, int]  # equal objects, by witness
    records: tuple[str, ...]  # runs whose records were used
    counts: dict[str, int]  # of differences, by kind
    differences: tuple[Difference, ...]  # the first of each kind, up to the requested number
    bytes_read: int
    requests: Requests
    started: float  # Unix seconds
    seconds: float
