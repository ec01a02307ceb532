"""Multipart uploads to an S3 bucket: parts, server-side copies, and their end."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, TypedDict

from s3unzip.errors import NotFoundError, ServiceFaultError
from s3unzip.model import Part
from s3unzip.stores.calls import count_request
from s3unzip.stores.ports import PartLimits, Upload
from s3unzip.stores.s3.access import Writing
from s3unzip.stores.s3.answers import S3_ERRORS, Call, translate_error
from s3unzip.stores.s3.boto_fallback import add_properties
from s3unzip.stores.s3.pins import date_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from mypy_boto3_s3.type_defs import (
        CompletedPartTypeDef,
        CompleteMultipartUploadRequestTypeDef,
        CopySourceTypeDef,
        CreateMultipartUploadRequestTypeDef,
        UploadPartCopyRequestTypeDef,
    )

    from s3unzip.errors import S3UnzipError
    from s3unzip.model import Location, Pin
    from s3unzip.stores.ports import Buffer, ObjectFacts
    from s3unzip.stores.s3.session import Session
    from s3unzip.zip import ByteRange

COPY_FROM = 5 * 1024**2  # UploadPartCopy takes a range only of a larger source


class _Owner(TypedDict, total=False):
    ExpectedBucketOwner: str


class S3Uploads:
    """The multipart uploads of one bucket that members are written to; threads may share it."""

    def __init__(self, session: Session, bucket: str, writing: Writing | None = None) -> None:
        self._session = session
        self._bucket = bucket
        self._writing = writing or Writing()
        self._owner = _Owner()
        if self._writing.owner is not None:
            self._owner["ExpectedBucketOwner"] = self._writing.owner

    @property
    def part_limits(self) -> PartLimits:
        """Amazon S3's limits; compatible stores have these or looser ones."""
        return PartLimits()

    def create_upload(self, key: str, facts: ObjectFacts) -> str:
        """Begin a multipart upload whose parts carry a CRC-32; return its id."""
        request: CreateMultipartUploadRequestTypeDef = {
            "Bucket": self._bucket,
            "Key": key,
            "ContentType": facts.content_type,
            "Metadata": facts.metadata,
            "ChecksumAlgorithm": "CRC32",
            "ChecksumType": "COMPOSITE",
        }
        add_properties(request, facts, self._writing)
        try:
            answer = self._session.control.create_multipart_upload(**request)
        except S3_ERRORS as error:
            raise self.fault(error, "PutObject", key) from None
        return str(_told(answer, "UploadId", key))

    def upload_part(
        self,
        upload: Upload,
        number: int,
        offset: int,  # noqa: ARG002 - a folder needs it
        body: Buffer,
        crc32: int,
    ) -> Part:
        """Upload one part; S3 verifies that its CRC-32 is `crc32`."""
        checksum = base64.b64encode(crc32.to_bytes(4, "big")).decode()
        content: Any = body if isinstance(body, bytes | bytearray) else bytes(body)
        try:
            answer = self._session.slow.upload_part(
                Bucket=self._bucket,
                Key=upload.key,
                UploadId=upload.upload_id,
                PartNumber=number,
                Body=content,
                ChecksumCRC32=checksum,
                **self._owner,
            )
        except S3_ERRORS as error:
            raise self.fault(error, "PutObject", upload.key) from None
        return Part(number, _told(answer, "ETag", upload.key), len(content), crc32, checksum)

    def copy_part(
        self,
        upload: Upload,
        number: int,
        offset: int,  # noqa: ARG002 - a folder needs it
        source: Location,
        pin: Pin,
        span: ByteRange,
    ) -> Part:
        """Copy `span` of the pinned source as part `number`, server-side.

        Raises:
            SourceChangedError: the source is no longer what `pin` says.
            StorageError: the store cannot copy ranges.
        """
        origin: CopySourceTypeDef = {"Bucket": source.bucket, "Key": source.key}
        if pin.version_id is not None:
            origin["VersionId"] = pin.version_id
        request: UploadPartCopyRequestTypeDef = {
            "Bucket": self._bucket,
            "Key": upload.key,
            "UploadId": upload.upload_id,
            "PartNumber": number,
            "CopySource": origin,
            "CopySourceRange": f"bytes={span.start}-{span.stop - 1}",
        }
        if self._writing.owner is not None:
            request["ExpectedBucketOwner"] = self._writing.owner
        if self._writing.copies_pay:
            request["RequestPayer"] = "requester"
        if pin.etag is not None:
            request["CopySourceIfMatch"] = pin.etag
        try:
            answer = self._session.slow.upload_part_copy(**request)
        except S3_ERRORS as error:
            raise self._copy_fault(error, upload, source) from None
        result = _told(answer, "CopyPartResult", upload.key)
        checksum = result.get("ChecksumCRC32")
        crc = int.from_bytes(base64.b64decode(checksum), "big") if checksum else None
        return Part(number, _told(result, "ETag", upload.key), span.length, crc, checksum)

    def complete_upload(
        self, upload: Upload, parts: Sequence[Part], *, if_absent: bool
    ) -> str | None:
        """Make the object visible, whole; return its ETag without quotes.

        Raises:
            ConflictError: `if_absent`, and the key exists.
            NotFoundError: there is no such upload, maybe because it is complete already.
        """
        request: CompleteMultipartUploadRequestTypeDef = {
            "Bucket": self._bucket,
            "Key": upload.key,
            "UploadId": upload.upload_id,
            "MultipartUpload": {
                "Parts": [_completed(part) for part in sorted(parts, key=lambda p: p.number)]
            },
            "MpuObjectSize": sum(part.size for part in parts),
        }
        if self._writing.owner is not None:
            request["ExpectedBucketOwner"] = self._writing.owner
        if if_absent:
            request["IfNoneMatch"] = "*"
        try:
            answer = self._session.slow.complete_multipart_upload(**request)
        except S3_ERRORS as error:
            raise self.fault(error, "PutObject", upload.key, conditional=if_absent) from None
        return unquoted(answer.get("ETag"))

    def abort_upload(self, upload: Upload) -> None:
        """Drop the upload and its parts; nothing happens if it is gone."""
        try:
            self._session.control.abort_multipart_upload(
                Bucket=self._bucket, Key=upload.key, UploadId=upload.upload_id, **self._owner
            )
        except S3_ERRORS as error:
            found = self.fault(error, "AbortMultipartUpload", upload.key)
            if not isinstance(found, NotFoundError):
                raise found from None

    def uploads(self, prefix: str) -> Iterator[Upload]:
        """Yield the incomplete uploads below `prefix`."""
        pages = self._session.control.get_paginator("list_multipart_uploads")
        try:
            for page in pages.paginate(Bucket=self._bucket, Prefix=prefix, **self._owner):
                for entry in page.get("Uploads", ()):
                    yield Upload(entry["Key"], entry["UploadId"])
                if page["IsTruncated"]:
                    count_request("list")
        except S3_ERRORS as error:
            raise self.fault(error, "ListBucketMultipartUploads", prefix) from None

    def copies_from(self, source: Location, pin: Pin) -> bool:
        """Return whether `copy_part` can copy from that source, pinned to its ETag or version."""
        reads = self._writing.copies and source.scheme == "s3"
        return reads and pin.size > COPY_FROM and date_of(pin) is None

    def _copy_fault(self, error: Exception, upload: Upload, source: Location) -> S3UnzipError:
        # The answer is about two objects; only the source has a condition.
        found = translate_error(error, Call("GetObject", source.bucket, source.key, pinned=True))
        upload_gone = "NoSuchUpload" in str(found)
        return self.fault(error, "PutObject", upload.key) if upload_gone else found

    def fault(
        self, error: Exception, action: str, key: str, *, conditional: bool = False
    ) -> S3UnzipError:
        """Return the error of the tree that `error` means for `key`."""
        return self._session.understand(
            error, Call(action, self._bucket, key, conditional=conditional)
        )


def _told(answer: Mapping[str, Any], field: str, key: str) -> Any:
    """Return a field of an answer; truncated response headers leave fields out.

    Raises:
        ServiceFaultError: the field is not there.
    """
    if field not in answer:
        raise ServiceFaultError(f"{key}: the answer came without its {field}")
    return answer[field]


def _completed(part: Part) -> CompletedPartTypeDef:
    completed: CompletedPartTypeDef = {"PartNumber": part.number, "ETag": part.etag}
    if part.checksum_crc32 is not None:
        completed["ChecksumCRC32"] = part.checksum_crc32
    return completed


def unquoted(etag: str | None) -> str | None:
    """Return an ETag without its quotes: lines of outcomes are many, and JSON escapes quotes."""
    return etag.strip('"') if etag else None
