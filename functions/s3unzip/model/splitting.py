"""What is known of members over several tasks: scans, and how their slices fit together."""

from __future__ import annotations

from msgspec import Struct

from s3unzip.model.counts import Requests
from s3unzip.model.outcomes import Outcome  # noqa: TC001 - msgspec reads it


class ScanReport(Struct, frozen=True, omit_defaults=True):
    """What one scan cost: ``scans/<id>.json``; what it found is beside it, ``scans/<id>.bin``."""

    scan: str
    member: int
    part: int
    found: bool  # False: no boundary here, the segment joins the one before it
    seconds: float = 0.0
    started: float = 0.0  # Unix seconds
    bytes_read: int = 0
    requests: Requests = Requests()


class SliceParts(Struct, frozen=True, array_like=True):
    """Which multipart parts one slice of a split member uploads: an element of a `Link`."""

    part: int  # of the task that does it
    segments: tuple[int, ...]  # parts of the scans it extracts, in order; of a copy: none
    offset: int  # of its first byte in the object
    size: int  # bytes
    first_number: int  # of its first multipart part
    count: int  # of its multipart parts


class Link(Struct, frozen=True, omit_defaults=True):
    """How the tasks of one split member fit together: ``links/<member>.json``."""

    member: int
    key: str
    upload_id: str | None  # None: no slice is to be done
    data_start: int = 0  # offset in the archive of the member's data
    slices: tuple[SliceParts, ...] = ()
    stream: bool = False  # the member is to be streamed whole, as a task of its own
    outcome: Outcome | None = None  # the member's, where it is known already


class LinkCost(Struct, frozen=True):
    """What linking cost, all attempts together: ``link.json``."""

    requests: Requests
