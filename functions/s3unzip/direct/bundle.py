"""The records of a direct run as one object: a ZIP archive of the files that other runs keep apart.

A run that goes on has a claim in its place, which is a small JSON object.
"""

from __future__ import annotations

import io
import zipfile
from enum import Enum
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from s3unzip.errors import UsageError
from s3unzip.model import decode, encode

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_CLAIM_BYTES = 512  # a claim is smaller, a bundle is larger: it holds a report and its page
EPOCH = (1980, 1, 1, 0, 0, 0)  # the same files are the same bytes


class Event(Enum):
    """What is known of the event of a run that has ended."""

    NOTHING = ""
    MISSING = "missing"  # it could not be sent
    SENT = "sent"  # noted where the queue may have its message twice


class Claim(Struct, frozen=True):
    """Who does a run now."""

    run: str
    holder: str  # the id of the queue's message
    until: float  # Unix seconds: by then its function has ended, whatever happened to it
    attempt: int = 1  # the delivery of the holder's message; the message of a first one comes again
    event: Event = Event.NOTHING
    token: str = ""  # of one invocation: a message and its copy may be at work at the same moment


Bundle = dict[str, bytes]  # by the names of `s3unzip.run_files`


def pack(files: Mapping[str, bytes], claim: Claim) -> bytes:
    """Return the bundle of `files`; the claim that they were made under is its comment."""
    body = io.BytesIO()
    with zipfile.ZipFile(body, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, EPOCH)
            archive.writestr(entry, data, zipfile.ZIP_DEFLATED, compresslevel=1)
        archive.comment = encode(claim)
    return body.getvalue()


def unpack(data: bytes) -> tuple[Claim, Bundle]:
    """Return the claim, and the files of a run that has ended; none while it goes on.

    Raises:
        UsageError: it is neither a claim nor a bundle.
    """
    if len(data) < MAX_CLAIM_BYTES:
        return decode(data, Claim), {}
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            files = {name: archive.read(name) for name in archive.namelist()}
            return msgspec.json.decode(archive.comment, type=Claim), files
    except (zipfile.BadZipFile, msgspec.DecodeError) as error:
        raise UsageError(f"not the records of a run: {error}") from error
