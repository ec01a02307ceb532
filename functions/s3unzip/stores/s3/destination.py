"""Members in an S3 bucket.

obstore sends ordinary PUT, HEAD and GET requests. botocore sends all other requests.
"""

from __future__ import annotations

import base64
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Any, TypeVar
from urllib.parse import quote, unquote_plus, urlencode

import obstore

from s3unzip.errors import (
    NotFoundError,
    S3UnzipError,
    ServiceFaultError,
    StorageError,
    UnconfirmedError,
    UnsupportedError,
)
from s3unzip.model import Location, Part, Pin
from s3unzip.object_properties import CRC_KEY
from s3unzip.stores.calls import count_request
from s3unzip.stores.config import StoreConfig
from s3unzip.stores.listing import MAX_PAGES
from s3unzip.stores.ports import (
    PIECE,
    Buffer,
    Destination,
    Kind,
    ListPage,
    ObjectFacts,
    StoredObject,
    Upload,
)
from s3unzip.stores.s3.errors import (
    PARSED_PAGE,
    Call,
    ServerAnswer,
    explain_answer,
    get_action,
    is_unsupported,
    read_answer,
    s3_errors,
    translate_error,
    unquoted,
)
from s3unzip.stores.s3.session import Session
from s3unzip.stores.s3.source import content_length, get_object, needs_botocore
from s3unzip.zip import ByteRange

T = TypeVar("T")
# The error codes of Complete that require a new upload (API_CompleteMultipartUpload).
# VersityGW responds with InvalidPart if the upload was aborted.
RESTART_CODES = frozenset({"ConditionalRequestConflict", "InvalidPart"})

COPY_ABOVE_BYTES = 5 * 1024**2  # UploadPartCopy copies ranges only from objects larger than this
_CRC = re.compile(r"[0-9a-fA-F]{1,8}")
# A CRC-32 in base64. An object uploaded in parts has a checksum of checksums, such as "...-3".
_CHECKSUM = re.compile(r"[A-Za-z0-9+/]{6}==")


class S3Destination(Destination):
    """A bucket to which members are written; threads may share this object.

    Args:
        config: settings for storing members: the owner of the bucket, the KMS key, whether the
            credentials for writing can also read the archive, and who pays for requests.
    """

    def __init__(self, session: Session, bucket: str, config: StoreConfig) -> None:
        self._session = session
        self._bucket = bucket
        self._config = config

    def check_reachable(self) -> None:
        self._session.check_bucket(self._bucket)

    def put(self, key: str, body: Buffer, facts: ObjectFacts, *, if_absent: bool) -> str | None:
        """Write an object with a checksum that S3 verifies; return the ETag without quotes.

        If the response contains no ETag, the server may not have stored the object, so a HEAD
        checks whether the object exists.
        """

        def send() -> str | None:
            # obstore does not support ACLs, and would not sign the header of an ACL.
            if facts.acl is not None or needs_botocore(self._session, key):
                answer = self._put_by_botocore(key, body, facts, if_absent=if_absent)
                return unquoted(_require_field(answer, "ETag", key))
            # For a response without an ETag, obstore itself raises an error, which becomes an
            # `UnconfirmedError`.
            return self._put_by_obstore(key, body, facts, if_absent=if_absent)

        try:
            return self._try_with_checksums(
                "put", send, describe=lambda: self._describe_write(key, facts, if_absent=if_absent)
            )
        except UnconfirmedError:
            count_request("head")
            stored = self.head(key)
            if stored is None or not _is_written(stored, body, facts):
                raise
            return stored.etag

    def _put_by_obstore(
        self, key: str, body: Buffer, facts: ObjectFacts, *, if_absent: bool
    ) -> str | None:
        # obstore cannot send the expected owner of the bucket, so the owner is confirmed first.
        self._session.confirm_owner(self._bucket, self._config.destination_owner)
        answer = obstore.put(
            self._session.writer(self._bucket, self._config.destination_kms_key),
            key,
            body,
            attributes=_obstore_attributes(facts),
            tags=facts.tags,
            mode="create" if if_absent else "overwrite",
            use_multipart=False,
        )
        return unquoted(answer["e_tag"])

    def replace(self, key: str, body: bytes, facts: ObjectFacts, etag: str | None) -> None:
        """Replace the object whose ETag is `etag`, or any object if `etag` is None."""
        self._try_with_checksums(
            "put",
            lambda: self._put_by_botocore(key, body, facts, if_absent=False, etag=etag),
            describe=lambda: Call("PutObject", self._bucket, key, conditional=etag is not None),
        )

    def _put_by_botocore(
        self,
        key: str,
        body: Buffer,
        facts: ObjectFacts,
        *,
        if_absent: bool,
        etag: str | None = None,
    ) -> Any:
        """Write a whole object with a CRC-32 that S3 verifies, and return the response."""
        request = self._object_request(facts)
        request["ChecksumCRC32"] = self._encode_checksum(zlib.crc32(body))
        if if_absent:
            request["IfNoneMatch"] = "*"
        if etag is not None:
            request["IfMatch"] = f'"{etag}"'
        return self._send("bodies", "put_object", Key=key, Body=bytes(body), **request)

    def _try_with_checksums(
        self, kind: Kind, send: Callable[[], T], *, describe: Callable[[], Call]
    ) -> T:
        """Return the result of `send`; if the server refuses checksums, send again without them.

        Args:
            kind: kind of request to count for the second attempt.
            send: function that sends a request with or without checksums, depending on
                `Session.sends_checksums`.
            describe: function that returns the description of the request. Because this function is
                slow, it is called only for errors.
        """
        has_checksums = self._session.sends_checksums
        try:
            return send()
        except s3_errors() as error:
            if not has_checksums or not _may_refuse_checksums(read_answer(error)):
                raise self._session.explain_and_adapt(error, describe()) from None
        self._session.stop_checksums()
        count_request(kind)
        with self._session.explaining(describe()):
            return send()

    def _describe_write(
        self, key: str, facts: ObjectFacts | None = None, *, if_absent: bool = False
    ) -> Call:
        """Describe a request that writes `key`, for errors.

        The description contains the headers that the user's options add to the request. An error
        names the options, because a store may not support these headers.

        Args:
            facts: properties that the request stores. If None, the request has no headers for
                properties or a KMS key.
        """
        possible_headers = [
            (if_absent, "if-none-match"),
            (facts is not None and facts.acl is not None, "x-amz-acl"),
            (
                facts is not None and self._config.destination_kms_key is not None,
                "x-amz-server-side-encryption",
            ),
            (facts is not None and facts.storage_class is not None, "x-amz-storage-class"),
            (facts is not None and facts.tags is not None, "x-amz-tagging"),
        ]
        return Call(
            "PutObject",
            self._bucket,
            key,
            conditional=if_absent,
            headers=tuple(header for is_sent, header in possible_headers if is_sent),
        )

    def head(self, key: str) -> StoredObject | None:
        """Return the stored object, or None if there is none.

        If the metadata of the object has no CRC-32, a second HEAD requests the store's checksum.
        With SSE-KMS, the second HEAD requires the permission kms:Decrypt (API_HeadObject).
        """
        with suppress(NotFoundError), self._explaining("GetObject", key):
            if not needs_botocore(self._session, key):
                stored = self._head_by_obstore(key)
                if stored.crc32 is not None:
                    return stored
                count_request("head")
            return self._head_by_botocore(key)
        return None

    def _head_by_obstore(self, key: str) -> StoredObject:
        """Return the stored object with the CRC-32 in its metadata, without the store's checksum.

        obstore cannot send the expected owner of the bucket, so the owner is confirmed first.
        """
        self._session.confirm_owner(self._bucket, self._config.destination_owner)
        answer = obstore.get(self._session.reader(self._bucket), key, options={"head": True})
        return StoredObject(
            key,
            answer.meta["size"],
            _parse_crc(answer.attributes.get(CRC_KEY, "")),
            unquoted(answer.meta["e_tag"]),
        )

    def _head_by_botocore(self, key: str) -> StoredObject:
        """Return the stored object, with the store's checksum if the server returns one."""
        mode = None  # requests no checksum
        if self._session.sends_checksums:
            mode = "ENABLED"
        try:
            answer = self._send("control", "head_object", Key=key, ChecksumMode=mode)
        except s3_errors() as error:
            # The response to a HEAD has no body to indicate which header the server refuses.
            if mode is None or read_answer(error).status not in {400, 501}:
                raise
            count_request("head")
            answer = self._send("control", "head_object", Key=key)
        return StoredObject(
            key,
            # A HEAD requires the permission s3:GetObject.
            content_length(Call("GetObject", self._bucket, key), answer),
            # Many servers capitalize the name: `Metadata` would have "Zip-Crc32".
            crc32=_parse_crc(
                answer["ResponseMetadata"]["HTTPHeaders"].get(f"x-amz-meta-{CRC_KEY}", "")
            ),
            etag=unquoted(answer.get("ETag")),
            checksum=_decode_checksum(answer.get("ChecksumCRC32", "")),
        )

    def list_page(
        self,
        prefix: str,
        first: str,
        last: str,  # noqa: ARG002 - S3 does not support this bound
        token: str | None,
    ) -> ListPage:
        """Return the objects from one LIST request, and the token for the next request.

        `first` and `last` are the first and the last key that the caller looks for.
        """
        start = None
        if token is None and first > prefix:  # a token already determines where the page begins
            start = _just_before(first)
        with self._explaining("ListBucket", prefix):
            answer = self._send(
                "control",
                "list_objects_v2",
                Prefix=prefix,
                ContinuationToken=token,
                StartAfter=start,
            )
        if PARSED_PAGE not in answer:
            raise ServiceFaultError(
                f"s3://{self._bucket}/{prefix}: the answer is not a list of objects"
            )
        objects, next_token = answer[PARSED_PAGE]
        # On the last page, the next token is None. On other pages, the next token is "" if the
        # server supports only the first version of ListObjects, which has no tokens. The token of
        # this page would return this page again.
        if next_token is not None and next_token in {"", token}:
            raise StorageError(
                f"s3://{self._bucket}/{prefix}: the list has no token for a new page; this server "
                "may not implement ListObjectsV2"
            )
        return objects, next_token

    def read(self, key: str, span: tuple[int, int] | None = None) -> Iterator[Buffer]:
        call = Call("GetObject", self._bucket, key, owner=self._config.destination_owner)
        with self._session.explaining(call):
            _, pieces = get_object(self._session, call, span, min_chunk_size=PIECE)
            yield from pieces

    def delete(self, keys: Sequence[str]) -> None:
        try:
            answer = self._send(
                "control",
                "delete_objects",
                Delete={"Objects": [{"Key": key} for key in keys], "Quiet": False},
            )
        except s3_errors() as error:
            refusal = read_answer(error)
            # Some servers require an MD5, but botocore sends a CRC-32. These servers refuse the
            # request with different codes.
            if is_unsupported(refusal) or refusal.status in {400, 405, 411}:
                self._delete_each(keys)
                return
            # DeleteObjects requires s3:DeleteObject, so the error names this permission.
            raise self._session.explain_and_adapt(
                error, Call("DeleteObject", self._bucket, keys[0])
            ) from None
        failure = next(iter(answer.get("Errors", ())), None)
        if failure is not None:  # only the first failure is reported
            raise explain_answer(
                ServerAnswer(200, failure.get("Code", ""), failure.get("Message", "")),
                Call("DeleteObject", self._bucket, failure.get("Key", "")),
            )
        if len(answer.get("Deleted", ())) < len(keys):
            raise ServiceFaultError(
                f"s3://{self._bucket}/{keys[0]}: the answer does not list the deleted objects"
            )

    def _delete_each(self, keys: Sequence[str]) -> None:
        """Delete objects one by one, for a server that does not accept a list of keys."""
        for key in keys:
            count_request("delete")
            with suppress(NotFoundError), self._explaining("DeleteObject", key):
                self._send("control", "delete_object", Key=key)

    def create_upload(self, key: str, facts: ObjectFacts) -> str:
        """Begin a multipart upload and return its id.

        Each part has a CRC-32, unless the server has refused checksums.
        """

        def create() -> Any:
            request = self._object_request(facts)
            if self._session.sends_checksums:
                request |= {"ChecksumAlgorithm": "CRC32", "ChecksumType": "COMPOSITE"}
            return self._send("control", "create_multipart_upload", Key=key, **request)

        answer = self._try_with_checksums(
            "create", create, describe=lambda: self._describe_write(key, facts)
        )
        return str(_require_field(answer, "UploadId", key))

    def upload_part(
        self,
        upload: Upload,
        number: int,
        offset: int,  # noqa: ARG002 - a destination that is a folder needs it
        body: Buffer,
        crc32: int,
    ) -> Part:
        """Upload one part; S3 verifies that its CRC-32 is `crc32`."""
        content: Any = body
        if not isinstance(body, bytes | bytearray):  # a memoryview, which botocore does not accept
            content = bytes(body)

        def send() -> Part:
            checksum = self._encode_checksum(crc32)  # None after the server has refused checksums
            answer = self._send(
                "bodies",
                "upload_part",
                Key=upload.key,
                UploadId=upload.upload_id,
                PartNumber=number,
                Body=content,
                ChecksumCRC32=checksum,
            )
            return Part(
                number,
                _require_field(answer, "ETag", upload.key),
                len(content),
                crc32=crc32,
                checksum_crc32=checksum,
            )

        return self._try_with_checksums(
            "part", send, describe=lambda: self._describe_write(upload.key)
        )

    def copy_part(
        self,
        upload: Upload,
        number: int,
        offset: int,  # noqa: ARG002 - a destination that is a folder needs it
        source: Location,
        pin: Pin,
        span: ByteRange,
    ) -> Part:
        """Let the server copy `span` of the pinned source to part `number`."""
        if not self._session.implements_copies:
            raise UnsupportedError(f"{source}: this server does not implement UploadPartCopy")
        copy_source = {"Bucket": source.bucket, "Key": source.key}
        version = self._session.readable_version(source.bucket, pin)
        if version is not None:
            copy_source["VersionId"] = version
        try:
            answer = self._send(
                "slow",
                "upload_part_copy",
                Key=upload.key,
                UploadId=upload.upload_id,
                PartNumber=number,
                CopySource=copy_source,
                CopySourceRange=f"bytes={span.start}-{span.stop - 1}",
                CopySourceIfMatch=pin.etag,
                # The option is for reading the archive, and a copy reads the archive.
                RequestPayer="requester" if self._config.request_payer else None,
            )
        except s3_errors() as error:
            raise self._explain_failed_copy(error, upload, source, version) from None
        copied_part = _require_field(answer, "CopyPartResult", upload.key)
        checksum = copied_part.get("ChecksumCRC32")
        # The caller compares the checksum. If the server does not send a checksum, at least the
        # size of the part is checked.
        if checksum is None and not self._may_have_size(upload, number, span.length):
            raise StorageError(f"{upload.key}: the server copied a range that was not requested")
        return Part(
            number,
            _require_field(copied_part, "ETag", upload.key),
            size=span.length,
            crc32=_decode_checksum(checksum or ""),
            checksum_crc32=checksum,
        )

    def _may_have_size(self, upload: Upload, number: int, size: int) -> bool:
        """Return False if the server says that a part does not have `size` bytes.

        If the server does not say which size the part has, return True. Some servers ignore the
        range of a copy, or copy a byte too many.
        """
        count_request("list")
        with suppress(StorageError), self._explaining("ListMultipartUploadParts", upload.key):
            listed = self._send(
                "control",
                "list_parts",
                Key=upload.key,
                UploadId=upload.upload_id,
                PartNumberMarker=number - 1,
                MaxParts=1,
            ).get("Parts", ())
            return all(
                part.get("Size", size) == size
                for part in listed
                if part.get("PartNumber") == number
            )
        return True

    def _explain_failed_copy(
        self, error: Exception, upload: Upload, source: Location, version: str | None
    ) -> S3UnzipError:
        """Return the error for a failed copy; if the server cannot copy, stop using copies."""
        answer = read_answer(error)
        if is_unsupported(answer):
            self._session.implements_copies = False
        # NoSuchUpload concerns the upload. All other errors concern the source, which is pinned.
        call = Call(get_action(version), source.bucket, source.key, pinned=True)
        if answer.code == "NoSuchUpload":
            call = self._describe_write(upload.key)
        return self._session.explain_and_adapt(error, call)

    def complete_upload(
        self, upload: Upload, parts: Sequence[Part], *, if_absent: bool
    ) -> str | None:
        """Make the whole object visible atomically; return its ETag without quotes."""
        call = self._describe_write(upload.key, if_absent=if_absent)

        def complete() -> str | None:
            with_checksums = self._session.sends_checksums
            request: dict[str, Any] = {
                "MultipartUpload": {"Parts": _list_parts(parts, with_checksums=with_checksums)}
            }
            if with_checksums:
                request["MpuObjectSize"] = sum(part.size for part in parts)
            if if_absent:
                request["IfNoneMatch"] = "*"
            try:
                answer = self._send(
                    "slow",
                    "complete_multipart_upload",
                    Key=upload.key,
                    UploadId=upload.upload_id,
                    **request,
                )
            except s3_errors() as error:
                if read_answer(error).code not in RESTART_CODES:
                    raise  # `_try_with_checksums` translates this error
                self.abort_upload(upload)
                # After this error, the caller begins another upload.
                raise NotFoundError(str(translate_error(error, call))) from None
            return unquoted(_require_field(answer, "ETag", upload.key))

        return self._try_with_checksums("complete", complete, describe=lambda: call)

    def abort_upload(self, upload: Upload) -> None:
        with suppress(NotFoundError), self._explaining("AbortMultipartUpload", upload.key):
            self._send(
                "control", "abort_multipart_upload", Key=upload.key, UploadId=upload.upload_id
            )

    def uploads(self, prefix: str) -> Iterator[Upload]:
        markers: dict[str, str] = {}  # position where the next page begins
        for _ in range(MAX_PAGES):
            with self._explaining("ListBucketMultipartUploads", prefix):
                answer = self._send(
                    "control",
                    "list_multipart_uploads",
                    Prefix=prefix,
                    EncodingType="url",  # XML cannot represent some control characters
                    **markers,
                )
            decode = unquote_plus if answer.get("EncodingType") == "url" else str
            for upload in answer.get("Uploads", ()):
                yield Upload(
                    decode(_require_field(upload, "Key", prefix)),
                    _require_field(upload, "UploadId", prefix),
                )
            if not answer.get("IsTruncated"):
                return
            next_markers = {
                "KeyMarker": decode(answer.get("NextKeyMarker", "")),
                "UploadIdMarker": answer.get("NextUploadIdMarker", ""),
            }
            if next_markers == markers:  # the same page would be listed again
                break
            markers = next_markers
            count_request("list")  # the caller has counted the request for the first page
        raise StorageError(f"s3://{self._bucket}/{prefix}: the list of uploads does not end")

    def copies_from(self, source: Location, pin: Pin) -> bool:
        """Return whether `copy_part` can copy from `source`, which `pin` identifies."""
        return (
            source.scheme == "s3"
            and self._session.implements_copies
            and not pin.parts  # a single request cannot copy from two objects
            and pin.size > COPY_ABOVE_BYTES
            and pin.has_strong_etag  # a copy sends the ETag as its condition
            and self._session.accepts_if_match
            and self._config.can_copy  # the credentials for writing can read the archive
        )

    def _explaining(self, action: str, key: str) -> AbstractContextManager[None]:
        return self._session.explaining(Call(action, self._bucket, key))

    def _send(self, purpose: str, operation: str, **parameters: Any) -> Any:
        """Send a request about the bucket using botocore, and return the response.

        Args:
            purpose: purpose of the client (see `AwsSession.s3_client`).
            operation: name of the client method.
            parameters: arguments for the method, except bucket and owner. Arguments that are None
                are left out.
        """
        parameters["Bucket"] = self._bucket
        parameters["ExpectedBucketOwner"] = self._config.destination_owner
        return getattr(self._session.client(purpose), operation)(
            **{name: value for name, value in parameters.items() if value is not None}
        )

    def _encode_checksum(self, crc32: int) -> str | None:
        """Return a CRC-32 as S3 encodes it, or None if requests have no checksums."""
        if not self._session.sends_checksums:
            return None
        return base64.b64encode(crc32.to_bytes(4, "big")).decode()

    def _object_request(self, facts: ObjectFacts) -> dict[str, Any]:
        """Return the parameters that store `facts`; `_send` leaves out those that are None."""
        request: dict[str, Any] = {
            "ContentType": facts.content_type,
            "Metadata": facts.metadata,
            "ContentEncoding": facts.content_encoding,
            "CacheControl": facts.cache_control,
            "StorageClass": facts.storage_class,
            "ACL": facts.acl,
        }
        if facts.tags:
            request["Tagging"] = urlencode(facts.tags, quote_via=quote)
        if self._config.destination_kms_key is not None:
            request |= {
                "ServerSideEncryption": "aws:kms",
                "SSEKMSKeyId": self._config.destination_kms_key,
                "BucketKeyEnabled": True,
            }
        return request


def _may_refuse_checksums(answer: ServerAnswer) -> bool:
    """Return whether a server may have refused a request because of its checksums."""
    return (
        is_unsupported(answer)
        or answer.code == "MalformedXML"  # for checksums in the XML of CompleteMultipartUpload
        # An InvalidArgument may not name the header. Scaleway also sends this code for too many
        # parts.
        or (answer.code == "InvalidArgument" and "Part number" not in answer.message)
        or (  # codes with many causes, so the message must name the checksum
            answer.code in {"InvalidDigest", "InvalidRequest"}
            and "checksum" in answer.message.lower()
        )
    )


def _obstore_attributes(facts: ObjectFacts) -> obstore.Attributes:
    """Return an object's properties in obstore's form; obstore takes the tags separately."""
    attributes = {
        "Content-Type": facts.content_type,
        "Content-Encoding": facts.content_encoding,
        "Cache-Control": facts.cache_control,
        "Storage-Class": facts.storage_class,
        **facts.metadata,
    }
    return {name: value for name, value in attributes.items() if value is not None}


def _list_parts(parts: Sequence[Part], *, with_checksums: bool) -> list[dict[str, Any]]:
    """Return the parts as CompleteMultipartUpload expects them, ordered by number."""
    listed = []
    for part in sorted(parts, key=lambda part: part.number):
        fields: dict[str, Any] = {"PartNumber": part.number, "ETag": part.etag}
        if with_checksums and part.checksum_crc32:  # a part may have no checksum
            fields["ChecksumCRC32"] = part.checksum_crc32
        listed.append(fields)
    return listed


def _decode_checksum(checksum: str) -> int | None:
    """Return the CRC-32 in an S3 checksum, or None if it is not the CRC-32 of all bytes."""
    if not _CHECKSUM.fullmatch(checksum):
        return None
    return int.from_bytes(base64.b64decode(checksum), "big")


def _parse_crc(metadata: str) -> int | None:
    if not _CRC.fullmatch(metadata):
        return None
    return int(metadata, 16)


def _is_written(stored: StoredObject, body: Buffer, facts: ObjectFacts) -> bool:
    """Return whether `stored` has the size and checksum of `body`, and the CRC-32 in `facts`.

    A checksum that the store does not return is not compared.
    """
    return (
        stored.size == memoryview(body).nbytes
        # Both CRC-32 values come from metadata: of the stored object, and of the request.
        and stored.crc32 == _parse_crc(facts.metadata.get(CRC_KEY, ""))
        and stored.checksum in {None, zlib.crc32(body)}
    )


def _require_field(answer: Mapping[str, Any], field: str, key: str) -> Any:
    """Return a field of a response about `key`, or raise `UnconfirmedError` if it is missing.

    If a connection closes early, headers of the response can be missing.
    """
    if not answer.get(field):
        raise UnconfirmedError(f"{key}: the answer has no {field}")
    return answer[field]


def _just_before(key: str) -> str:
    """Return a string that sorts just before `key`: S3 lists only keys after ``StartAfter``."""
    previous = ord(key[-1]) - 1
    # Control characters and surrogates are not sent. If the result contains only the beginning of
    # the key, the listing may begin with a few keys that sort before `key`.
    if previous < 0x20 or 0xD800 <= previous < 0xE000:
        return key[:-1]
    # The last character of the result sorts after all other characters in keys.
    return f"{key[:-1]}{chr(previous)}\U0010fffd"
