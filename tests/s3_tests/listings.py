"""Listings of the store in memory as S3 writes them in XML."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING
from urllib.parse import quote
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from collections.abc import Mapping

    from s3unzip.stores.ports import ListedObject
    from tests.memory import MemoryBucket

ENDLESS = "\U0010ffff" * 4
PAGE = 1_000
STAMP = "2015-10-21T07:28:00.000Z"


def list_objects(bucket: MemoryBucket, query: Mapping[str, str]) -> str:
    """Return the inside of a ListBucketResult, of version 1 or 2, without delimiters."""
    most = min(PAGE, int(query.get("max-keys", PAGE)))
    after = query.get("continuation-token") or query.get("start-after") or query.get("marker", "")
    prefix = query.get("prefix", "")
    encoded = query.get("encoding-type") == "url"
    found = bucket.list_objects(prefix, after, ENDLESS)
    coming = (entry for entry in found if entry.key != after)
    page = list(islice(coming, most))
    truncated = most > 0 and next(coming, None) is not None
    fields = {
        "Prefix": prefix,
        "MaxKeys": str(most),
        "KeyCount": str(len(page)),
        "IsTruncated": str(truncated).lower(),
    }
    for name, field in (("StartAfter", "start-after"), ("ContinuationToken", "continuation-token")):
        if field in query:
            fields[name] = query[field]
    if encoded:
        fields["EncodingType"] = "url"
    if truncated:
        fields["NextContinuationToken"] = page[-1].key
    told = "".join(f"<{name}>{escape(value)}</{name}>" for name, value in fields.items())
    return told + "".join(_entry("Contents", entry, "", encoded=encoded) for entry in page)


def list_versions(bucket: MemoryBucket) -> str:
    """Return the inside of a ListVersionsResult: one version of each object."""
    null = "<VersionId>null</VersionId>"
    entries = (_entry("Version", one, null) for one in bucket.list_objects("", "", ENDLESS))
    return "<IsTruncated>false</IsTruncated>" + "".join(islice(entries, 128))


def list_uploads(bucket: MemoryBucket, query: Mapping[str, str]) -> str:
    """Return the inside of a ListMultipartUploadsResult."""
    entries = (
        f"<Upload><Key>{escape(one.key)}</Key><UploadId>{one.upload_id}</UploadId>"
        f"<Initiated>{STAMP}</Initiated></Upload>"
        for one in bucket.uploads(query.get("prefix", ""))
    )
    return "<IsTruncated>false</IsTruncated>" + "".join(entries)


def _entry(tag: str, one: ListedObject, more: str, *, encoded: bool = False) -> str:
    key = quote(one.key, safe="/-_.~") if encoded else escape(one.key)
    return (
        f"<{tag}><Key>{key}</Key>{more}<LastModified>{STAMP}</LastModified>"
        f"<ETag>&quot;{one.etag}&quot;</ETag><Size>{one.size}</Size>"
        f"<StorageClass>STANDARD</StorageClass></{tag}>"
    )
