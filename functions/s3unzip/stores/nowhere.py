"""A destination that keeps nothing: for testing an archive without writing its members."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s3unzip.errors import NotFoundError
from s3unzip.model import Location, Part
from s3unzip.stores.ports import PartLimits

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from s3unzip.stores.ports import Buffer, ListedObject, ObjectFacts, StoredObject, Upload

NOWHERE = Location("nowhere", "", "")


class NowhereDestination:
    """Takes every object and forgets it."""

    def put(self, key: str, body: Buffer, facts: ObjectFacts, *, if_absent: bool) -> None:
        """Forget the object."""

    def head(self, key: str) -> StoredObject | None:
        """Return None: nothing is here."""

    def list_objects(self, prefix: str, first: str, last: str) -> Iterator[ListedObject]:
        """Yield nothing."""
        del prefix, first, last
        yield from ()

    def read(self, key: str) -> Iterator[Buffer]:
        """Raise `NotFoundError`: nothing is here."""
        raise NotFoundError(f"{key}: nothing is kept")

    def delete(self, keys: Sequence[str]) -> None:
        """Do nothing."""

    def create_upload(self, key: str, facts: ObjectFacts) -> str:
        """Return an id that stands for nothing."""
        del facts
        return key

    def upload_part(
        self, upload: Upload, number: int, offset: int, body: Buffer, crc32: int
    ) -> Part:
        """Forget the part."""
        del upload, offset
        return Part(number, "", memoryview(body).nbytes, crc32)

    def complete_upload(self, upload: Upload, parts: Sequence[Part], *, if_absent: bool) -> None:
        """Forget the object."""

    def abort_upload(self, upload: Upload) -> None:
        """Do nothing."""

    def uploads(self, prefix: str) -> Iterator[Upload]:
        """Yield nothing."""
        del prefix
        yield from ()

    @property
    def part_limits(self) -> PartLimits:
        """Those of Amazon S3, so that members are cut as they would be."""
        return PartLimits()
