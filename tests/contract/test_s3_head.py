"""What a HEAD's answer means: it has no body, so the status says it all."""

import pytest

from s3unzip.errors import AccessDeniedError, S3UnzipError, ServiceFaultError, ThrottledError
from s3unzip.model import Location
from s3unzip.stores.factory import StoreConfig, open_stores
from s3unzip.stores.ports import StoredObject
from tests.servers import Asked, HttpServer, Reply

WHERE = Location("s3", "bucket", "")
KEYS = ["plain/key.txt", "odd//key.txt"]


def head(url: str, key: str) -> StoredObject | None:
    """Ask for one object's facts."""
    access = StoreConfig(endpoint_url=url, connect_seconds=1.0, stall_seconds=0.5)
    return open_stores(access).destination(WHERE).head(key)


def there(**metadata: str) -> Reply:
    """Return the answer for an object of 11 bytes."""
    headers = {f"x-amz-meta-{name.replace('_', '-')}": text for name, text in metadata.items()}
    return Reply(
        200, bytes(11), {"Last-Modified": "Wed, 21 Oct 2015 07:28:00 GMT", "ETag": '"e"', **headers}
    )


@pytest.mark.parametrize("key", KEYS)
def test_size_and_crc(key: str) -> None:
    """One HEAD brings both, whichever client carries it."""
    with HttpServer(lambda asked: there(zip_crc32="cbf43926")) as server:
        assert head(server.url, key) == StoredObject(key, 11, 0xCBF43926, "e")
    assert [asked.method for asked in server.asked] == ["HEAD"]


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("metadata", [{}, {"zip_crc32": "no number"}])
def test_no_crc(key: str, metadata: dict[str, str]) -> None:
    """An object of another writer has no CRC."""
    with HttpServer(lambda asked: there(**metadata)) as server:
        assert head(server.url, key) == StoredObject(key, 11, None, "e")


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


def test_another_owner() -> None:
    """If an account must own the bucket, the owner is checked before any object."""

    def answer(asked: Asked) -> Reply:
        owner = asked.headers.get("x-amz-expected-bucket-owner")
        return Reply(403) if owner == "111122223333" else there()

    with HttpServer(answer) as server:
        stores = open_stores(
            StoreConfig(
                Location("s3", "work", ""),
                endpoint_url=server.url,
                destination_owner="111122223333",
            )
        )
        with pytest.raises(AccessDeniedError):
            stores.destination(WHERE).head("key")
