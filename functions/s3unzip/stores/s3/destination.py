"""Members in an S3 bucket: single PUTs and HEADs by obstore, everything else by boto3."""

from __future__ import annotations

from typing import TYPE_CHECKING

import obstore

from s3unzip.errors import NotFoundError, S3UnzipError, ServiceFaultError, StorageError
from s3unzip.stores.calls import count_request
from s3unzip.stores.ports import ListedObject, StoredObject
from s3unzip.stores.s3 import boto_fallback as odd_keys
from s3unzip.stores.s3.answers import S3_ERRORS
from s3unzip.stores.s3.lean.client import read_headers
from s3unzip.stores.s3.lean.head_batch import HeadBatch
from s3unzip.stores.s3.uploads import S3Uploads, unquoted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from mypy_boto3_s3.type_defs import (
        ListObjectsV2RequestPaginateTypeDef,
    )
    from obstore import Attributes

    from s3unzip.stores.ports import Buffer, ObjectFacts
    from s3unzip.stores.s3.lean.client import LeanClient

PIECE = 1024**2
DELETE_BATCH = 1_000


class S3Destination(S3Uploads):
    """One bucket that members are written to; threads may share it."""

    def put(self, key: str, body: Buffer, facts: ObjectFacts, *, if_absent: bool) -> str | None:
        """Write one object whole; S3 verifies its CRC64NVME. Return its ETag without quotes."""
        try:
            if odd_keys.is_odd(key):
                etag = odd_keys.put(
                    self._session.slow,
                    self._bucket,
                    key,
                    body,
                    facts,
                    self._writing,
                    if_absent=if_absent,
                )
                return unquoted(etag)
            self._session.confirm_owner(self._bucket, self._writing.owner)
            answer = obstore.put(
                self._session.writer(self._bucket, self._writing),
                key,
                body,
                attributes=_attributes(facts),
                tags=facts.tags,
                mode="create" if if_absent else "overwrite",
                use_multipart=False,
            )
        except S3_ERRORS as error:
            raise self.fault(error, "PutObject", key, conditional=if_absent) from None
        return unquoted(answer["e_tag"])

    def head(self, key: str) -> StoredObject | None:
        """Return what is stored under `key`, None if nothing is.

        With SSE-KMS it needs kms:Decrypt, because S3 returns checksums only with that right
        (HeadObject).
        """
        try:
            asker = self._asker()
            headers = self._head_slowly(key) if asker is None else asker.head(key)
        except S3_ERRORS as error:
            refusal = self.fault(error, "GetObject", key)
            if isinstance(refusal, NotFoundError):
                return None
            raise refusal from None
        return read_headers(key, headers)

    def heads(self, keys: Sequence[str], at_once: int) -> list[StoredObject | None]:
        """Return what is stored under each key, None if only `head` can tell."""
        try:
            asker = self._asker()
        except (S3UnzipError, *S3_ERRORS):  # no credentials: `head` says so
            asker = None
        if asker is None:
            return [None] * len(keys)
        answers = zip(keys, HeadBatch(asker, keys).run(at_once), strict=True)
        return [None if found is None else _try_headers(key, found) for key, found in answers]

    def _asker(self) -> LeanClient | None:
        return self._session.asker(self._bucket, self._writing.owner)

    def _head_slowly(self, key: str) -> Mapping[str, str]:
        answer = self._session.control.head_object(
            Bucket=self._bucket, Key=key, ChecksumMode="ENABLED", **self._owner
        )
        headers: Mapping[str, str] = answer["ResponseMetadata"]["HTTPHeaders"]
        return headers

    def list_objects(self, prefix: str, first: str, last: str) -> Iterator[ListedObject]:
        """Yield what is below `prefix` from `first` to `last`, one request a 1,000 keys."""
        after = _just_before(first) if first else ""
        try:
            asker = self._asker()
            pages = self._pages(prefix, after) if asker is None else asker.pages(prefix, after)
            for page in pages:
                if page and first <= page[0].key and page[-1].key <= last:
                    yield from page
                    continue
                for entry in page:
                    if entry.key > last:
                        return
                    if entry.key >= first:
                        yield entry
        except S3_ERRORS as error:
            raise self.fault(error, "ListBucket", prefix) from None

    def _pages(self, prefix: str, after: str) -> Iterator[list[ListedObject]]:
        """Yield pages of LIST by boto3."""
        request: ListObjectsV2RequestPaginateTypeDef = {"Bucket": self._bucket, "Prefix": prefix}
        if self._writing.owner is not None:
            request["ExpectedBucketOwner"] = self._writing.owner
        if after:
            request["StartAfter"] = after
        for page in self._session.control.get_paginator("list_objects_v2").paginate(**request):
            yield [
                ListedObject(entry["Key"], entry["Size"], unquoted(entry.get("ETag")))
                for entry in page.get("Contents", ())
            ]
            if page["IsTruncated"]:
                count_request("list")

    def read(self, key: str) -> Iterator[Buffer]:
        """Yield an object's bytes in pieces."""
        try:
            if odd_keys.is_odd(key):
                answer = self._session.slow.get_object(Bucket=self._bucket, Key=key, **self._owner)
                yield from odd_keys.pieces(answer)
                return
            found = obstore.get(self._session.reader(self._bucket), key)
            for piece in found.stream(min_chunk_size=PIECE):
                yield memoryview(piece)
        except S3_ERRORS as error:
            raise self.fault(error, "GetObject", key) from None

    def delete(self, keys: Sequence[str]) -> None:
        """Delete the objects; nothing happens if they are gone."""
        for start in range(0, len(keys), DELETE_BATCH):
            if start:
                count_request("delete")
            batch = keys[start : start + DELETE_BATCH]
            try:
                answer = self._session.control.delete_objects(
                    Bucket=self._bucket,
                    Delete={"Objects": [{"Key": key} for key in batch], "Quiet": True},
                    **self._owner,
                )
            except S3_ERRORS as error:
                raise self.fault(error, "DeleteObject", batch[0]) from None
            for refused in answer.get("Errors", ()):
                raise StorageError(
                    f"s3:DeleteObject s3://{self._bucket}/{refused.get('Key')}: "
                    f"{refused.get('Code')}: {refused.get('Message')}"
                )


def _attributes(facts: ObjectFacts) -> Attributes:
    """Return what obstore sets beside the bytes, tags excepted."""
    attributes: Attributes = {"Content-Type": facts.content_type, **facts.metadata}
    if facts.content_encoding is not None:
        attributes["Content-Encoding"] = facts.content_encoding
    if facts.cache_control is not None:
        attributes["Cache-Control"] = facts.cache_control
    if facts.storage_class is not None:
        attributes["Storage-Class"] = facts.storage_class
    return attributes


def _try_headers(key: str, headers: Mapping[str, str]) -> StoredObject | None:
    try:
        return read_headers(key, headers)
    except ServiceFaultError:
        return None


def _just_before(key: str) -> str:
    """Return a string just below `key`, because ``StartAfter`` is exclusive."""
    last = ord(key[-1]) - 1
    if last < 0x20 or 0xD800 <= last < 0xE000:
        return key[:-1]
    return f"{key[:-1]}{chr(last)}\U0010fffd"
