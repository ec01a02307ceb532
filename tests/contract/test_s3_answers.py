"""Answers that real servers wrote, byte by byte, and what the S3 adapters make of them."""

import pytest

from s3unzip.errors import S3UnzipError, ServiceFaultError, StorageError
from s3unzip.model import Location
from s3unzip.stores.ports import Upload
from s3unzip.stores.s3.credentials import AwsSession
from tests.contract.places import list_all, stores_at
from tests.contract.test_s3_faults import CALLS, LINE
from tests.support.servers import Asked, HttpServer, Reply

WHERE = Location("s3", "bucket", "")
XMLNS = 'xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'
STAMP = "2026-11-25T22:19:26.764Z"

# API_ListObjectsV2 of Amazon S3: keys are encoded as forms are, so a space is "+".
AWS = f"""<?xml version="1.0" encoding="UTF-8"?>
<ListBucketResult {XMLNS}><Name>bucket</Name><Prefix/><KeyCount>6</KeyCount><MaxKeys>1000</MaxKeys>
<EncodingType>url</EncodingType><IsTruncated>false</IsTruncated>
{{contents}}</ListBucketResult>"""
AWS_ENTRY = (
    f"<Contents><Key>{{key}}</Key><LastModified>{STAMP}</LastModified>"
    "<ETag>&quot;c4ca4238a0b923820dcc509a6f75849b&quot;</ETag><Size>1</Size>"
    "<ChecksumAlgorithm>CRC64NVME</ChecksumAlgorithm><ChecksumType>FULL_OBJECT</ChecksumType>"
    "<StorageClass>STANDARD</StorageClass></Contents>"
)
# MinIO of 2026-02-12: EncodingType is the last element.
MINIO = f"""<?xml version="1.0" encoding="UTF-8"?>
<ListBucketResult {XMLNS}><Name>rec</Name><Prefix></Prefix><KeyCount>14</KeyCount>\
<MaxKeys>1000</MaxKeys><IsTruncated>false</IsTruncated>{{contents}}\
<EncodingType>url</EncodingType></ListBucketResult>"""
MINIO_ENTRY = (
    f"<Contents><Key>{{key}}</Key><LastModified>{STAMP}</LastModified>"
    "<ETag>&#34;c4ca4238a0b923820dcc509a6f75849b&#34;</ETag><Size>1</Size>"
    "<StorageClass>STANDARD</StorageClass></Contents>"
)
# VersityGW 1.8.0 encodes nothing, and says so by an empty EncodingType.
VERSITY = f"""<?xml version="1.0" encoding="UTF-8"?>
<ListBucketResult {XMLNS}><Name>rec</Name><KeyCount>14</KeyCount><MaxKeys>1000</MaxKeys>\
<IsTruncated>false</IsTruncated>{{contents}}<EncodingType></EncodingType></ListBucketResult>"""
VERSITY_ENTRY = (
    "<Contents><LastModified>2026-11-25T22:19:26Z</LastModified><ETag>"
    "&#34;c4ca4238a0b923820dcc509a6f75849b&#34;</ETag><Key>{key}</Key><Size>1</Size>"
    "<StorageClass>STANDARD</StorageClass></Contents>"
)
# Ceph and MiniStack percent-encode as URLs are: a space is "%20".
FORM = {
    "%01c": "\x01c",
    "100%25": "100%",
    "%3Cx%3E%22": '<x>"',
    "a%26b": "a&b",
    "a%2Bb": "a+b",
    "ctl%7F": "ctl\x7f",
    "e%3D%3F%23%3B%3A%40%2C%24": "e=?#;:@,$",
    "my+docs/file+0.txt": "my docs/file 0.txt",
    "new%0Aline": "new\nline",
    "per%2520cent": "per%20cent",
    "plus%2B+and+space": "plus+ and space",
    "st*r%7E%28%21%29%27": "st*r~(!)'",
    "%C3%BC/%E6%96%87": "ü/文",
}
URL = {
    "my%20docs/file%200.txt": "my docs/file 0.txt",
    "plus%2B%20and%20space": "plus+ and space",
    "plain/key.txt": "plain/key.txt",
}
PLAIN = {
    "100%": "100%",
    "&lt;x&gt;&#34;": '<x>"',
    "a&amp;b": "a&b",
    "a+b": "a+b",
    "my docs/file 0.txt": "my docs/file 0.txt",
    "new&#xA;line": "new\nline",
    "per%20cent": "per%20cent",
    "t&#x9;ab": "t\tab",
    "ü/文": "ü/文",
}
LISTS = {
    "Amazon S3": (AWS, AWS_ENTRY, FORM),
    "MinIO": (MINIO, MINIO_ENTRY, FORM),
    "Ceph": (AWS, AWS_ENTRY, URL),
    "VersityGW": (VERSITY, VERSITY_ENTRY, PLAIN),
}


@pytest.mark.parametrize("server_name", LISTS)
def test_a_listing_has_the_keys_that_the_server_meant(server_name: str) -> None:
    """Keys are those that botocore's own parser finds in the same bytes."""
    page, entry, keys = LISTS[server_name]
    body = page.format(contents="".join(entry.format(key=key) for key in keys)).encode()
    with HttpServer(lambda asked: Reply(200, body)) as server:
        listed = list_all(stores_at(server.url).destination(WHERE), "")
        client = AwsSession().client("s3", endpoint_url=server.url)
        answer = client.list_objects_v2(Bucket="bucket")
    assert [one.key for one in listed] == list(keys.values())
    assert [one.key for one in listed] == [one.get("Key") for one in answer["Contents"]]
    assert {one[1:] for one in listed} == {(1, "c4ca4238a0b923820dcc509a6f75849b")}


UPLOADS = (
    f"<ListMultipartUploadsResult {XMLNS}><Bucket>rec</Bucket>"
    "<NextKeyMarker>{after}</NextKeyMarker><NextUploadIdMarker>{after_id}</NextUploadIdMarker>"
    "<EncodingType>{encoding}</EncodingType><IsTruncated>{more}</IsTruncated>"
    "<Upload><Key>{key}</Key><UploadId>{upload}</UploadId></Upload></ListMultipartUploadsResult>"
)


@pytest.mark.parametrize(
    ("encoding", "keys"),
    [("url", ["a%2Bb", "my+docs/new%0Aline"]), ("", ["a+b", "my docs/new&#xA;line"])],
    ids=["MinIO", "VersityGW"],
)
def test_uploads_are_listed_over_pages(encoding: str, keys: list[str]) -> None:
    """Keys and markers of uploads are decoded as the server says."""
    pages = [
        UPLOADS.format(
            key=key,
            upload=f"u{n}",
            encoding=encoding,
            more="false" if n else "true",
            after=key,
            after_id=f"u{n}",
        )
        for n, key in enumerate(keys)
    ]
    replies = iter(pages)
    with HttpServer(lambda asked: Reply(200, next(replies).encode())) as server:
        uploads = list(stores_at(server.url).destination(WHERE).uploads(""))
    assert uploads == [Upload("a+b", "u0"), Upload("my docs/new\nline", "u1")]
    assert "key-marker=a%2Bb&" in server.asked[1].path
    assert "upload-id-marker=u0" in server.asked[1].path


def test_a_list_of_uploads_without_progress_ends() -> None:
    """A server that says the same markers again is not asked for ever."""
    told = {"key": "a", "upload": "u", "encoding": "url", "after": "a", "after_id": "u"}
    page = UPLOADS.format(**told, more="true").encode()
    with HttpServer(lambda asked: Reply(200, page)) as server:
        with pytest.raises(StorageError, match="list of uploads does not end"):
            list(stores_at(server.url).destination(WHERE).uploads(""))
        assert len(server.asked) == 2


@pytest.mark.parametrize("token", ["", "<NextContinuationToken>t</NextContinuationToken>"])
def test_a_listing_without_progress_is_a_fault(token: str) -> None:
    """A server that says that there is more, and not where it begins, or where it began before."""
    page = f"<ListBucketResult {XMLNS}><IsTruncated>true</IsTruncated>{token}</ListBucketResult>"
    with HttpServer(lambda asked: Reply(200, page.encode())) as server:
        with pytest.raises(ServiceFaultError, match="the list does not go on"):
            list_all(stores_at(server.url).destination(WHERE), "")
        assert len(server.asked) <= 2


ERRORS = {
    "an element inside": "<Error><Code>Access<b/>Denied</Code><Message>m</Message></Error>",
    "an element inside the message": "<Error><Code>A</Code><Message>m<b>x</b></Message></Error>",
    "twice": "<Error><Code>A</Code><Code>B</Code><Message>m</Message><Message>n</Message></Error>",
    "twice with elements inside": "<Error><Code><b/></Code><Code><b/></Code></Error>",
    "no elements": "<Error>AccessDenied</Error>",
    "an error inside": "<Answer><Error>AccessDenied</Error></Answer>",
    "two errors": "<Answer><Error/><Error><Code>A</Code></Error></Answer>",
    "two request ids": "<Error><Code>A</Code><RequestId>1</RequestId><RequestId/></Error>",
    "a list": "<ListBucketResult><Contents/></ListBucketResult>",
    "no XML": "<Error><Code>A</Error>",
    "HTML": "<html><body>Bad gateway</body></html>",
    "nothing": "",
}


@pytest.mark.parametrize("call", CALLS)
def test_no_shape_of_an_error_is_an_error_of_ours(call: str) -> None:
    """Whatever a server puts into an error, the call says in one line that the server refuses."""
    body = ""
    with HttpServer(lambda asked: Reply(400, body.encode())) as server:
        stores = stores_at(server.url)
        for body in ERRORS.values():
            with pytest.raises(S3UnzipError, match=LINE) as caught:
                CALLS[call](stores)
            assert "object has no attribute" not in str(caught.value), body


def test_pages_of_one_listing_follow_the_token() -> None:
    """The first request says where to begin, the next one has the token of the page before."""
    entry = AWS_ENTRY.format(key="b")
    more = "<IsTruncated>true</IsTruncated><NextContinuationToken>t+/=</NextContinuationToken>"
    pages = [
        f"<ListBucketResult>{entry}{more}</ListBucketResult>",
        f"<ListBucketResult>{entry.replace('>b<', '>c<')}</ListBucketResult>",
    ]

    def answer(asked: Asked) -> Reply:
        return Reply(200, pages["continuation-token=t%2B%2F%3D" in asked.path].encode())

    with HttpServer(answer) as server:
        listed = list_all(stores_at(server.url).destination(WHERE), "", "b")
    assert [one.key for one in listed] == ["b", "c"]
    assert "start-after=a" in server.asked[0].path
