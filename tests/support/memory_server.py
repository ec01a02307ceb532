"""The store in memory that tests stand on, as an S3 server: as much as the commands ask of it.

What is decided here is HTTP and XML only. What a condition, a part, a copy or a listing means is
asked of `MemoryBucket`, as the product asks it.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import dropwhile, islice
from typing import Any
from urllib.parse import parse_qsl, quote_plus, unquote, urlsplit
from xml.etree import ElementTree as ET
from xml.sax.saxutils import escape

from s3unzip.errors import ConflictError, NotFoundError, SourceChangedError, StorageError
from s3unzip.model import Location, Part
from s3unzip.stores.ports import ObjectFacts, PartLimits, StoredObject, Upload
from s3unzip.zip import ByteRange
from tests.support import servers
from tests.support.memory import MemoryBucket
from tests.support.servers import HttpServer, Reply, s3_error

LISTED = "2015-10-21T07:28:00.000Z"
ENDLESS = "\U0010ffff" * 4
PAGE = 1_000
METADATA = "x-amz-meta-"


class RefusalError(Exception):
    """An answer that is an error."""

    def __init__(self, status: int, code: str) -> None:
        super().__init__(code)
        self.status, self.code = status, code


class Asked(servers.Asked):
    """One request of S3."""

    @property
    def bucket(self) -> str:
        return urlsplit(self.path).path.lstrip("/").partition("/")[0]

    @property
    def key(self) -> str:
        return unquote(urlsplit(self.path).path.lstrip("/").partition("/")[2])

    @property
    def query(self) -> dict[str, str]:
        return dict(parse_qsl(urlsplit(self.path).query, keep_blank_values=True))

    @property
    def facts(self) -> ObjectFacts:
        return ObjectFacts(
            self.headers.get("content-type", "binary/octet-stream"),
            {
                name.removeprefix(METADATA): value
                for name, value in self.headers.items()
                if name.startswith(METADATA)
            },
            self.headers.get("content-encoding"),
            self.headers.get("cache-control"),
            self.headers.get("x-amz-storage-class"),
            dict(parse_qsl(self.headers.get("x-amz-tagging", ""), keep_blank_values=True)) or None,
            self.headers.get("x-amz-acl"),
        )

    @property
    def if_absent(self) -> bool:
        """Whether the object must not exist; S3 knows no other condition by If-None-Match."""
        wanted = self.headers.get("if-none-match")
        if wanted not in {None, "*"} or "if-match" in self.headers:
            raise RefusalError(501, "NotImplemented")
        return wanted == "*"


class MemoryS3:
    """Buckets in memory, by name; `asked` has every request."""

    def __init__(self) -> None:
        self.buckets: dict[str, MemoryBucket] = {}
        self.asked: list[Asked] = []
        self.order: Callable[[str], Any] | None = None  # of keys in lists; None: as in S3
        # Its answer, if it gives one, is in place of the right one.
        self.spoil: Callable[[Asked], Reply | None] = lambda _: None
        self._lock = threading.Lock()

    def create_bucket(self, name: str) -> MemoryBucket:
        self.buckets[name] = bucket = MemoryBucket()
        bucket.part_limits = PartLimits()
        bucket.neighbours = self.buckets
        return bucket

    def answer(self, asked: Asked) -> Reply:
        try:
            with self._lock:
                return self._answer(asked)
        except RefusalError as refusal:
            return s3_error(refusal.status, refusal.code)
        except (ConflictError, SourceChangedError):
            return s3_error(412, "PreconditionFailed")
        except NotFoundError as missing:
            return s3_error(404, "NoSuchUpload" if "upload" in str(missing) else "NoSuchKey")
        except (AssertionError, StorageError) as refusal:
            return s3_error(400, str(refusal).rpartition(": ")[2])

    def _answer(self, asked: Asked) -> Reply:
        if not asked.bucket:
            names = "".join(f"<Bucket><Name>{name}</Name></Bucket>" for name in self.buckets)
            return _xml("ListAllMyBucketsResult", f"<Buckets>{names}</Buckets>")
        if asked.method == "PUT" and not asked.key:
            self.create_bucket(asked.bucket)
            return Reply(200)
        bucket = self.buckets.get(asked.bucket)
        if bucket is None:
            raise RefusalError(404, "NoSuchBucket")
        return _of_object(bucket, asked, self.buckets) if asked.key else self._of_bucket(asked)

    def _of_bucket(self, asked: Asked) -> Reply:
        bucket, query = self.buckets[asked.bucket], asked.query
        if asked.method == "POST" and "delete" in query:
            root = ET.fromstring(asked.body)  # noqa: S314 - of a test's client
            bucket.delete([node.text or "" for node in root.iter() if node.tag.endswith("Key")])
            return _xml("DeleteResult", "")
        if "uploads" in query:
            return _xml("ListMultipartUploadsResult", _list_uploads(bucket, query))
        if asked.method == "GET":
            return _xml("ListBucketResult", _list_objects(bucket, query, self.order))
        raise RefusalError(501, "NotImplemented")


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
    fields = ["<EncodingType>url</EncodingType>"] if is_encoded else []
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
        upload = bucket.create_upload(asked.key, asked.facts)
        return _xml(
            "InitiateMultipartUploadResult",
            f"<Bucket>{asked.bucket}</Bucket><Key>{escape(asked.key)}</Key>"
            f"<UploadId>{upload}</UploadId>",
        )
    if asked.method == "PUT" and "x-amz-copy-source" not in asked.headers:
        etag = bucket.put(asked.key, asked.body, asked.facts, if_absent=asked.if_absent)
        return Reply(200, headers={"ETag": f'"{etag}"'})
    if asked.method == "DELETE":
        bucket.delete([asked.key])
        return Reply(204)
    if asked.method in {"GET", "HEAD"}:
        return _read(bucket, asked)
    raise RefusalError(501, "NotImplemented")


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
        etag = bucket.complete_upload(upload, _told_parts(asked.body), if_absent=asked.if_absent)
        return _xml(
            "CompleteMultipartUploadResult",
            f"<Key>{escape(asked.key)}</Key><ETag>&quot;{etag}&quot;</ETag>",
        )
    raise RefusalError(501, "NotImplemented")


def _told_parts(body: bytes) -> list[Part]:
    root = ET.fromstring(body or b"<CompleteMultipartUpload/>")  # noqa: S314 - of a test's client
    return [
        Part(int(node.findtext("{*}PartNumber", "0")), node.findtext("{*}ETag", ""), 0)
        for node in root.iterfind("{*}Part")
    ]


def _copy(
    bucket: MemoryBucket,
    asked: Asked,
    upload: Upload,
    number: int,
    buckets: dict[str, MemoryBucket],
) -> Part:
    name, _, key = unquote(asked.headers["x-amz-copy-source"]).lstrip("/").partition("/")
    key = key.partition("?versionId=")[0]
    source = Location("s3", name, key)
    pin = buckets[name].head_source(source)
    span = ByteRange(0, pin.size)
    text = asked.headers.get("x-amz-copy-source-range")
    if text is not None:
        first, dash, last = text.removeprefix("bytes=").partition("-")
        if not (text.startswith("bytes=") and dash and first.isdigit() and last.isdigit()):
            raise RefusalError(400, "InvalidArgument")
        span = ByteRange(int(first), int(last) + 1)
        if span.stop > pin.size or span.start >= span.stop:
            raise RefusalError(400, "InvalidArgument")
    return bucket.copy_part(upload, number, 0, source, pin, span)


def _read(bucket: MemoryBucket, asked: Asked) -> Reply:
    where = Location("s3", asked.bucket, asked.key)
    pin = bucket.head_source(where)
    if asked.headers.get("if-match") not in {None, pin.etag}:  # the port pins every read by it
        raise RefusalError(412, "PreconditionFailed")
    if asked.headers.get("if-none-match") == pin.etag:
        return Reply(304, headers={"ETag": pin.etag or ""})
    status, span = _span(asked.headers.get("range", ""), pin.size)
    facts = bucket.objects[asked.key].facts
    headers = {
        **{f"{METADATA}{name}": value for name, value in facts.metadata.items()},
        "ETag": pin.etag or "",
        "Last-Modified": "Wed, 21 Oct 2015 07:28:00 GMT",
        "Content-Type": facts.content_type,
    }
    if status == 206:
        headers["Content-Range"] = f"bytes {span.start}-{span.stop - 1}/{pin.size}"
    return Reply(status, bucket.pinned(where, pin).read(span), headers)


def _span(text: str, size: int) -> tuple[int, ByteRange]:
    if not text:
        return 200, ByteRange(0, size)
    first, _, last = text.removeprefix("bytes=").partition("-")
    start, stop = (
        (int(first), int(last) + 1 if last else size) if first else (max(0, size - int(last)), size)
    )
    if start >= size:
        raise RefusalError(416, "InvalidRange")
    return 206, ByteRange(start, min(stop, size))


def _xml(root: str, inner: str) -> Reply:
    body = f'<{root} xmlns="http://s3.amazonaws.com/doc/2006-03-01/">{inner}</{root}>'
    return Reply(200, body.encode(), {"Content-Type": "application/xml"})


@contextmanager
def run_memory_s3(store: MemoryS3 | None = None) -> Iterator[str]:
    """Serve a store in memory, by default an empty one; yield its URL."""
    s3 = store or MemoryS3()

    def answer(one: servers.Asked) -> Reply:
        asked = Asked(one.method, one.path, one.headers, one.body)
        s3.asked.append(asked)
        return s3.spoil(asked) or s3.answer(asked)

    with HttpServer(answer) as server:
        yield server.url
