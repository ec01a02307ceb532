"""What a HEAD's answer means: it has no body, so the status says it all."""

import pytest

from s3unzip.errors import AccessDeniedError, S3UnzipError, ServiceFaultError, ThrottledError
from s3unzip.model import Location
from s3unzip.stores.ports import StoredObject
from tests.contract.places import stores_at
from tests.servers import HttpServer, Reply

KEYS = ["plain/key.txt", "odd//key.txt"]


def head(url: str, key: str) -> StoredObject | None:
    """Ask for one object's facts."""
    return stores_at(url).destination(Location("s3", "bucket", "")).head(key)


def there(**metadata: str) -> Reply:
    """Return the answer for an object of 11 bytes."""
    headers = {f"x-amz-meta-{name.replace('_', '-')}": text for name, text in metadata.items()}
    return Reply(
        200, bytes(11), {"Last-Modified": "Wed, 21 Oct 2015 07:28:00 GMT", "ETag": '"e"', **headers}
    )


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize(
    ("metadata", "crc"),
    [({"zip_crc32": "cbf43926"}, 0xCBF43926), ({}, None), ({"zip_crc32": "no number"}, None)],
)
def test_size_and_crc(key: str, metadata: dict[str, str], crc: int | None) -> None:
    """One HEAD brings both, whichever client carries it; of another writer's there is no CRC."""
    with HttpServer(lambda asked: there(**metadata)) as server:
        assert head(server.url, key) == StoredObject(key, 11, crc, "e")
    quick = crc is not None or "//" in key  # else the store is asked for its own checksum
    assert [asked.method for asked in server.asked] == ["HEAD"] * (1 if quick else 2)


@pytest.mark.parametrize("key", KEYS)
def test_nothing_there(key: str) -> None:
    """A 404 is an answer."""
    with HttpServer(lambda asked: Reply(404)) as server:
        assert head(server.url, key) is None


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (503, ThrottledError),
        (429, ThrottledError),
        (500, ServiceFaultError),
        (403, AccessDeniedError),
    ],
)
def test_refusals(key: str, status: int, kind: type[S3UnzipError]) -> None:
    """A status without a code is read by what it always means, after one attempt."""
    with HttpServer(lambda asked: Reply(status)) as server, pytest.raises(kind) as caught:
        head(server.url, key)
    assert len(server.asked) == 1
    assert str(caught.value).startswith(f"s3:GetObject s3://bucket/{key}")
