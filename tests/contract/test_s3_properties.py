"""What is set on an object besides its content, in each request that writes one."""

from collections.abc import Callable
from urllib.parse import parse_qsl

import pytest

from s3unzip.model import Location
from s3unzip.stores.ports import Destination, ObjectFacts
from tests.contract.places import stores_at
from tests.servers import Asked, HttpServer, Reply

TAGS = {"team": "data + co", "Größe": "1/2", "empty": ""}
FACTS = ObjectFacts(
    "text/csv", {"mtime": "1", "owner": "me"}, "gzip", "max-age=60", "STANDARD_IA", TAGS
)
PLAIN = ObjectFacts("text/csv", {"mtime": "1"})
BEGUN = b"<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>"
WRITING: dict[str, Callable[[Destination, ObjectFacts], object]] = {
    "put": lambda out, facts: out.put("a.csv", b"1,2", facts, if_absent=False),
    "put of an odd key": lambda out, facts: out.put("a//b", b"1,2", facts, if_absent=False),
    "upload": lambda out, facts: out.create_upload("a.csv", facts),
}


def answer(asked: Asked) -> Reply:
    """Take everything."""
    return Reply(200, BEGUN if asked.method == "POST" else b"", {"ETag": '"e"'})


def headers_of(name: str, facts: ObjectFacts) -> dict[str, str]:
    """Return the headers of the one request that writes an object with `facts`."""
    with HttpServer(answer) as server:
        WRITING[name](stores_at(server.url).destination(Location("s3", "bucket", "")), facts)
    (asked,) = server.asked
    return asked.headers


@pytest.mark.parametrize("name", WRITING)
def test_each_property_is_a_header(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All properties are sent and signed, whatever variables of other programs say."""
    monkeypatch.setenv("AWS_DISABLE_TAGGING", "true")
    headers = headers_of(name, FACTS)
    assert headers["content-type"] == "text/csv"
    assert headers["content-encoding"] == "gzip"
    assert headers["cache-control"] == "max-age=60"
    assert headers["x-amz-storage-class"] == "STANDARD_IA"
    assert (headers["x-amz-meta-owner"], headers["x-amz-meta-mtime"]) == ("me", "1")
    assert dict(parse_qsl(headers["x-amz-tagging"], keep_blank_values=True)) == TAGS
    for signed in ("x-amz-tagging", "x-amz-storage-class"):
        assert signed in headers["authorization"]


@pytest.mark.parametrize("name", WRITING)
def test_nothing_is_set_unasked(name: str) -> None:
    """Without properties the bucket's own defaults hold."""
    headers = headers_of(name, PLAIN)
    assert not {"cache-control", "x-amz-storage-class", "x-amz-tagging"} & headers.keys()
