"""The proxy itself: what it passes on, breaks, slows and counts."""

import http.client
from collections import Counter
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from mypy_boto3_s3 import S3Client

from tests.faults.proxy import Act, FaultProxy, Rule
from tests.faults.world import SOURCE, open_client

BODY = bytes(range(256)) * 1024


@pytest.fixture
def client(proxy: FaultProxy) -> Iterator[S3Client]:
    client = open_client(proxy.url)
    yield client
    client.close()


def test_the_proxy_passes_requests_on_and_records_them(proxy: FaultProxy, client: S3Client) -> None:
    """What is put comes back as it was, and each request is on record by its kind."""
    client.put_object(Bucket=SOURCE, Key="a b/ü.bin", Body=BODY)
    answer = client.get_object(Bucket=SOURCE, Key="a b/ü.bin", Range="bytes=5-99")
    assert answer["Body"].read() == BODY[5:100]
    client.head_object(Bucket=SOURCE, Key="a b/ü.bin")
    client.list_objects_v2(Bucket=SOURCE)
    upload = client.create_multipart_upload(Bucket=SOURCE, Key="m")["UploadId"]
    part = client.upload_part(Bucket=SOURCE, Key="m", UploadId=upload, PartNumber=1, Body=BODY)
    client.complete_multipart_upload(
        Bucket=SOURCE,
        Key="m",
        UploadId=upload,
        MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]},
    )
    records = proxy.take_records()
    kinds = ["put", "get", "head", "list", "create", "part", "complete"]
    assert [record.kind for record in records] == kinds
    assert records[0].sent >= len(BODY)
    assert records[1].received == 95
    assert records[0].path == f"/{SOURCE}/a b/ü.bin"


@pytest.mark.parametrize("act", [Act.RESET, Act.STALL, Act.TRUNCATE, Act.LOSE])
def test_breaks(proxy: FaultProxy, act: Act) -> None:
    """Resets, stalls, truncated bodies and lost answers never look like an answer."""
    connection = http.client.HTTPConnection(urlsplit(proxy.url).netloc, timeout=10)
    proxy.set_rules(Rule(act, times=1, seconds=0.05))
    connection.request("GET", "/")
    with pytest.raises((OSError, http.client.HTTPException)):
        connection.getresponse().read()
    connection.close()
    assert Counter(record.fault for record in proxy.take_records()) == {act.value: 1}
