"""Archives that are extracted: deleted or tagged, and never another version than that.

Where a bucket keeps versions the version's id says which one is meant. Elsewhere it
is its ETag, which S3 compares (`conditional-deletes` in its user guide); a HEAD before that keeps
servers that know no conditions from deleting a newer archive.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from s3unzip.errors import ConflictError, NotFoundError, SourceChangedError, StorageError
from s3unzip.model import Location, Pin
from s3unzip.stores.calls import count_request
from s3unzip.stores.s3.errors import S3_ERRORS, Call
from s3unzip.stores.s3.session import Session
from s3unzip.stores.s3.source import date_of

if TYPE_CHECKING:  # stubs
    from mypy_boto3_s3.type_defs import (
        DeleteObjectRequestTypeDef,
        HeadObjectOutputTypeDef,
        HeadObjectRequestTypeDef,
    )

T = TypeVar("T")
MAX_TAGS = 10  # of an object: object-tagging in the user guide
NO_VERSION = "null"  # the id of an object's only version where versioning is off or suspended


class S3Disposal:
    """Deletes and tags objects of any bucket that the session can see."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def delete(self, location: Location, pin: Pin) -> None:
        """Delete the version; nothing happens if it is gone."""
        if self._find(location, pin) is not None:
            self._delete(location, pin)

    def tag(self, location: Location, pin: Pin, tags: Mapping[str, str]) -> None:
        """Add `tags` to those of the version."""
        version = _version_of(pin)
        if version is None:
            raise StorageError(
                f"{location}: S3 cannot tag one version in a bucket without versioning: turn "
                "versioning on, or delete the archive"
            )
        call = Call("GetObjectVersionTagging", location.bucket, location.key, pinned=True)
        which: Any = {"Bucket": location.bucket, "Key": location.key, "VersionId": version}
        control = self._session.control
        if self._head(location, version) is None:
            raise SourceChangedError(f"{location}: the version that was extracted is gone")
        count_request("get")
        answer = self._ask(call, lambda: control.get_object_tagging(**which))
        old = {tag["Key"]: tag["Value"] for tag in answer["TagSet"]}
        new = {**old, **tags}
        if len(new) > MAX_TAGS:
            raise StorageError(f"{location}: would have {len(new)} tags, and S3 allows {MAX_TAGS}")
        if new == old:
            return
        call = Call("PutObjectVersionTagging", location.bucket, location.key, pinned=True)
        which["Tagging"] = {"TagSet": [{"Key": key, "Value": new[key]} for key in new]}
        count_request("put")
        self._ask(call, lambda: control.put_object_tagging(**which))

    def _find(self, location: Location, pin: Pin) -> HeadObjectOutputTypeDef | None:
        """Return what HEAD says of the version; None if nothing is there."""
        version = _version_of(pin)
        if version is None and (pin.etag is None or date_of(pin) is not None):
            raise StorageError(
                f"{location}: the store gives neither versions nor ETags, so a newer archive could "
                "be taken for the one that was extracted"
            )
        found = self._head(location, version)
        if found is not None and version is None and found["ETag"] != pin.etag:
            raise SourceChangedError(f"{location}: a newer archive is there")
        return found

    def _head(self, location: Location, version: str | None) -> HeadObjectOutputTypeDef | None:
        request: HeadObjectRequestTypeDef = {"Bucket": location.bucket, "Key": location.key}
        if version is not None:
            request["VersionId"] = version
        action = "GetObject" if version is None else "GetObjectVersion"
        call = Call(action, location.bucket, location.key)
        try:
            return self._ask(call, lambda: self._session.control.head_object(**request))
        except NotFoundError:
            return None

    def _delete(self, location: Location, pin: Pin) -> None:
        request: DeleteObjectRequestTypeDef = {"Bucket": location.bucket, "Key": location.key}
        version = _version_of(pin)
        action = "DeleteObject"
        if version is not None:
            request["VersionId"], action = version, "DeleteObjectVersion"
        elif pin.etag is not None:
            request["IfMatch"] = pin.etag
        call = Call(action, location.bucket, location.key, conditional=True)
        count_request("delete")
        try:
            self._ask(call, lambda: self._session.control.delete_object(**request))
        except NotFoundError:  # another attempt was quicker
            return
        except ConflictError as refusal:
            raise SourceChangedError(f"{location}: a newer archive is there") from refusal

    def _ask(self, call: Call, request: Callable[[], T]) -> T:
        try:
            return request()
        except S3_ERRORS as error:
            raise self._session.understand(error, call) from None


def _version_of(pin: Pin) -> str | None:
    """Return the id of a version that no later PUT replaces."""
    return None if pin.version_id == NO_VERSION else pin.version_id
