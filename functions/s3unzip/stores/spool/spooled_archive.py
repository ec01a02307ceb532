"""What is known of an archive that is kept in a temporary file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from s3unzip.model import Location, Pin


DEFAULT_BYTES = 10 * 1024**3


class SpooledArchive(Struct, frozen=True):
    """An archive and the file that has its bytes, as long as this command runs."""

    location: Location
    path: str  # for all processes of this user
    pin: Pin
    max_bytes: int = DEFAULT_BYTES  # of the file, as --max-spool has it
