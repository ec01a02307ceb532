"""The store in memory that tests stand on, as an S3 server: as much as the commands ask of it.

What is decided here is HTTP and XML only. What a condition, a part, a copy or a listing means is
asked of `MemoryBucket`, as the product asks it.
"""

import threading
from collections.abc import Callable, Mapping
from itertools import dropwhile, islice
from typing import Any
from urllib.parse import parse_qsl, quote_plus, unquote
from xml.etree import ElementTree as ET
from xml.sax.saxutils import escape

from s3unzip import errors, model
from s3unzip.stores.ports import ObjectFacts, PartLimits, StoredObject, Upload
from s3unzip.zip import ByteRange
from tests.support.memory import MemoryBucket
from tests.support.servers import Asked, HttpServer, Reply, s3_error, serve_range

LISTED = "2015-10-21T07:28:00.000Z"
ENDLESS = "\U0010ffff" * 4
PAGE = 1_000
METADATA = "x-amz-meta-"


class MemoryS3(HttpServer):
    """Buckets in memory, by name, behind a port of this machine."""

    def __init__(self, *names: str) -> None:
        super().__init__(lambda asked: self.spoil(asked) or self.answer(asked))
        self.buckets: dict[str, MemoryBucket] = {}
        self.order: Callable[[str], Any] | None = None  # of keys in lists; None: as in S3
        # Its answer, if it gives one, is in place of the right one.
        self.spoil: Callable[[Asked], Reply | None] = lambda _: None
        self._lock = threading.Lock()
        for name in names:
            self.buckets[name] = MemoryBucket(part_limits=PartLimits(), neighbours=self.buckets)

    def answer(self, asked: Asked) -> Reply:
        try:
            with self._lock:
                return self._answer(asked)
        except (errors.ConflictError, errors.SourceChangedError):
            return s3_error(412, "PreconditionFailed")
        except errors.NotFoundError as missing:
            return s3_error(404, "NoSuchUpload" if "upload" in str(missing) else "NoSuchKey")
        except (AssertionError, errors.StorageError) as refusal:
            return s3_error(400, str(refusal).rpartition(": ")[2])

    def _answer(self, asked: Asked) -> Reply:
        if not asked.bucket:
            names = "".join(f"<Bucket><Name>{name}</Name></Bucket>" for name in self.buckets)
            return _xml("ListAllMyBucketsResult", f"<Buckets>{names}</Buckets>")
        bucket = self.buckets[asked.bucket]
        if asked.key:
            return _of_object(bucket, asked, self.buckets)
        return self._of_bucket(bucket, asked)

    def _of_bucket(self, bucket: MemoryBucket, asked: Asked) -> Reply:
        query = asked.query
        if asked.method == "POST" and "delete" in query:
            root = ET.fromstring(asked.body)  # noqa: S314 - of a test's client
            keys = [node.text or "" for node in root.iter() if node.tag.endswith("Key")]
            bucket.delete(keys)
            return _xml(
                "DeleteResult",
                "".join(f"<Deleted><Key>{escape(key)}</Key></Deleted>" for key in keys),
            )
        if "uploads" in query:
            return _xml("ListMultipartUploadsResult", _list_uploads(bucket, query))
        assert asked.method == "GET"
        return _xml("ListBucketResult", _list_objects(bucket, query, self.order))


def _list_objects(
    bucket: MemoryBucket, query: Mapping[str, str], order: Callable[[str], Any] | None
) -> str:
    """Return the inside of a ListBucketResult of version 2; `order` is of the keys."""
    token, first = query.get("continuation-token", ""), query.get("start-after", "")
    after = token or first
    found = bucket.list_objects(query.get("prefix", ""), first if order else after, ENDLESS)
    if order:
        found = iter(sorted(found, key=lambda entry: order(entry.key)))
        found = dropwhile(lambda entry: entry.key != token, found) if token else found
    coming = (entry for entry in found if entry.key != after)
    page = list(islice(coming, PAGE))
    is_encoded = query.get("encoding-type") == "url"
    fields = ["<EncodingType>url</EncodingType>"] * is_encoded
    if next(coming, None) is None:
        fields += ["<IsTruncated>false</IsTruncated>"]
    else:
        next_token = f"<NextContinuationToken>{escape(page[-1].key)}</NextContinuationToken>"
        fields += ["<IsTruncated>true</IsTruncated>", next_token]
    return "".join([*fields, *(_entry(entry, encoded=is_encoded) for entry in page)])


def _entry(one: StoredObject, *, encoded: bool) -> str:
    # Amazon S3 and MinIO encode keys as forms are: a space is "+".
    key = quote_plus(one.key, safe="/*") if encoded else escape(one.key)
    return (
        f"<Contents><Key>{key}</Key><LastModified>{LISTED}</LastModified>"
        f"<ETag>&quot;{one.etag}&quot;</ETag><Size>{one.size}</Size></Contents>"
    )


def _list_uploads(bucket: MemoryBucket, query: Mapping[str, str]) -> str:
    return "<IsTruncated>false</IsTruncated>" + "".join(
        f"<Upload><Key>{escape(one.key)}</Key><UploadId>{one.upload_id}</UploadId>"
        f"<Initiated>{LISTED}</Initiated></Upload>"
        for one in bucket.uploads(query.get("prefix", ""))
    )


def _of_object(bucket: MemoryBucket, asked: Asked, buckets: dict[str, MemoryBucket]) -> Reply:
    if "uploadId" in asked.query:
        return _of_upload(bucket, asked, buckets)
    if asked.method == "POST" and "uploads" in asked.query:
        return _xml(
            "InitiateMultipartUploadResult",
            f"<Bucket>{asked.bucket}</Bucket><Key>{escape(asked.key)}</Key>"
            f"<UploadId>{bucket.create_upload(asked.key, _facts_of(asked))}</UploadId>",
        )
    if asked.method == "PUT" and "x-amz-copy-source" not in asked.headers:
        etag = bucket.put(asked.key, asked.body, _facts_of(asked), if_absent=_is_if_absent(asked))
        return Reply(200, headers={"ETag": f'"{etag}"'})
    assert asked.method in {"GET", "HEAD"}
    return _read(bucket, asked)


def _of_upload(bucket: MemoryBucket, asked: Asked, buckets: dict[str, MemoryBucket]) -> Reply:
    upload = Upload(asked.key, asked.query["uploadId"])
    if asked.method == "PUT":
        number = int(asked.query["partNumber"])
        if "x-amz-copy-source" in asked.headers:
            part = _copy(bucket, asked, upload, number, buckets)
            return _xml("CopyPartResult", f"<ETag>{escape(part.etag)}</ETag>")
        part = bucket.upload_part(upload, number, 0, asked.body, 0)
        return Reply(200, headers={"ETag": part.etag})
    if asked.method == "DELETE":
        bucket.abort_upload(upload)
        return Reply(204)
    if asked.method == "POST":
        etag = bucket.complete_upload(
            upload, _told_parts(asked.body), if_absent=_is_if_absent(asked)
        )
        return _xml(
            "CompleteMultipartUploadResult",
            f"<Key>{escape(asked.key)}</Key><ETag>&quot;{etag}&quot;</ETag>",
        )
    return s3_error(501, "NotImplemented")


def _told_parts(body: bytes) -> list[model.Part]:
    return [
        model.Part(int(node.findtext("{*}PartNumber", "0")), node.findtext("{*}ETag", ""), 0)
        for node in ET.fromstring(  # noqa: S314 - of a test's client
            body or b"<CompleteMultipartUpload/>"
        ).iterfind("{*}Part")
    ]


def _copy(
    bucket: MemoryBucket,
    asked: Asked,
    upload: Upload,
    number: int,
    buckets: dict[str, MemoryBucket],
) -> model.Part:
    name, _, key = unquote(asked.headers["x-amz-copy-source"]).lstrip("/").partition("/")
    source = model.Location("s3", name, key)
    pin = buckets[name].tail(source, 0).pin
    first, last = asked.headers["x-amz-copy-source-range"].removeprefix("bytes=").split("-")
    return bucket.copy_part(upload, number, 0, source, pin, ByteRange(int(first), int(last) + 1))


def _read(bucket: MemoryBucket, asked: Asked) -> Reply:
    pin = bucket.tail(model.Location("s3", asked.bucket, asked.key), 0).pin
    if asked.headers.get("if-match") not in {None, pin.etag}:  # the port pins every read by it
        return s3_error(412, "PreconditionFailed")
    stored = bucket.objects[asked.key]
    headers = {
        **{f"{METADATA}{name}": value for name, value in stored.facts.metadata.items()},
        "ETag": stored.etag,
        "Last-Modified": "Wed, 21 Oct 2015 07:28:00 GMT",
        "Content-Type": stored.facts.content_type,
    }
    return serve_range(stored.body, asked.headers.get("range", ""), headers)


def _facts_of(asked: Asked) -> ObjectFacts:
    return ObjectFacts(
        asked.headers.get("content-type", "binary/octet-stream"),
        {
            name.removeprefix(METADATA): value
            for name, value in asked.headers.items()
            if name.startswith(METADATA)
        },
        asked.headers.get("content-encoding"),
        asked.headers.get("cache-control"),
        asked.headers.get("x-amz-storage-class"),
        dict(parse_qsl(asked.headers.get("x-amz-tagging", ""), keep_blank_values=True)) or None,
        asked.headers.get("x-amz-acl"),
    )


def _is_if_absent(asked: Asked) -> bool:
    """Say whether the object must not exist; S3 knows no other condition by If-None-Match."""
    wanted = asked.headers.get("if-none-match")
    if wanted not in {None, "*"} or "if-match" in asked.headers:
        raise errors.StorageError("another condition: NotImplemented")
    return wanted == "*"


def _xml(root: str, inner: str) -> Reply:
    body = f'<{root} xmlns="http://s3.amazonaws.com/doc/2006-03-01/">{inner}</{root}>'
    return Reply(200, body.encode(), {"Content-Type": "application/xml"})
