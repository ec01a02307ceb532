"""Keys that obstore's path type refuses or changes, read and written with boto3 instead.

object_store drops a leading and a trailing slash, and refuses empty segments,
``.`` and ``..`` segments and control characters; S3 accepts them all.
"""

from __future__ import annotations

import base64
import re
import zlib
from contextlib import closing
from typing import TYPE_CHECKING, cast
from urllib.parse import quote, urlencode

from botocore.exceptions import HTTPClientError

from s3unzip.stores.s3.pins import date_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.literals import StorageClassType
    from mypy_boto3_s3.type_defs import (
        CreateMultipartUploadRequestTypeDef,
        GetObjectOutputTypeDef,
        GetObjectRequestTypeDef,
        PutObjectRequestTypeDef,
    )

    from s3unzip.model import Pin
    from s3unzip.stores.ports import Buffer, ObjectFacts
    from s3unzip.stores.s3.access import Writing

_ODD = re.compile(r"(?:^|/)\.{0,2}(?:/|$)|[\x00-\x1f\x7f]")
_EDGES = ("", "/", ".")
PIECE = 1024**2


def is_odd(key: str) -> bool:
    """Return whether obstore would refuse or change `key`."""
    # Nearly no key needs the regular expression, which is five times as slow.
    if key.isprintable() and "//" not in key and "/." not in key and key[:1] not in _EDGES:
        return key.endswith("/")
    return _ODD.search(key) is not None


def get_range(
    client: S3Client, bucket: str, key: str, span: str, pin: Pin
) -> GetObjectOutputTypeDef:
    """Return the answer to one ranged GET; `span` as in ``bytes=0-9``."""
    request: GetObjectRequestTypeDef = {"Bucket": bucket, "Key": key, "Range": span}
    date = date_of(pin)
    if date is not None:
        request["IfUnmodifiedSince"] = date
    elif pin.etag is not None:
        request["IfMatch"] = pin.etag
    if pin.version_id is not None:
        request["VersionId"] = pin.version_id
    return client.get_object(**request)


def pieces(answer: GetObjectOutputTypeDef) -> Iterator[bytes]:
    """Yield a body.

    Raises:
        HTTPClientError: the body broke.
    """
    from urllib3.exceptions import HTTPError  # noqa: PLC0415 - 0.1 s; boto3 has imported it by now

    try:
        with closing(answer["Body"]) as body:
            while piece := body.read(PIECE):
                yield piece
    except HTTPError as error:  # botocore translates most, not all of them
        raise HTTPClientError(error=error) from error


def put(  # noqa: PLR0913 - one PUT, all of it
    client: S3Client,
    bucket: str,
    key: str,
    body: Buffer,
    facts: ObjectFacts,
    writing: Writing,
    *,
    if_absent: bool,
) -> str | None:
    """Write one object whole, with a CRC-32 that S3 verifies; return its ETag."""
    content = bytes(body)
    crc = base64.b64encode(zlib.crc32(content).to_bytes(4, "big")).decode()
    request: PutObjectRequestTypeDef = {
        "Bucket": bucket,
        "Key": key,
        "Body": content,
        "ContentType": facts.content_type,
        "Metadata": facts.metadata,
        "ChecksumCRC32": crc,
    }
    if if_absent:
        request["IfNoneMatch"] = "*"
    add_properties(request, facts, writing)
    return client.put_object(**request).get("ETag")


def add_properties(
    request: PutObjectRequestTypeDef | CreateMultipartUploadRequestTypeDef,
    facts: ObjectFacts,
    writing: Writing,
) -> None:
    """Add to a boto3 request what is stored beside an object's bytes, and how it is stored."""
    if facts.content_encoding is not None:
        request["ContentEncoding"] = facts.content_encoding
    if facts.cache_control is not None:
        request["CacheControl"] = facts.cache_control
    if facts.storage_class is not None:
        request["StorageClass"] = cast("StorageClassType", facts.storage_class)
    if facts.tags:
        request["Tagging"] = urlencode(facts.tags, quote_via=quote)
    if writing.owner is not None:
        request["ExpectedBucketOwner"] = writing.owner
    if writing.kms_key is not None:
        request["ServerSideEncryption"] = "aws:kms"
        request["SSEKMSKeyId"] = writing.kms_key
        request["BucketKeyEnabled"] = True
