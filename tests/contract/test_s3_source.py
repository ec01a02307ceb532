"""Archives in stores that know less than S3: no ETag, no suffix ranges."""

import re

import pytest

from s3unzip.errors import SourceChangedError, StorageError
from s3unzip.model import Location
from s3unzip.zip import ByteRange
from tests.contract.places import stores_at
from tests.support.servers import Asked, HttpServer, Reply, s3_error

DATA = bytes(range(256)) * 100
DATE, LATER = "Wed, 21 Oct 2015 07:28:00 GMT", "Wed, 21 Oct 2015 07:28:01 GMT"
ANY = Location("s3", "bucket", "a.zip")


class Store:
    """One object on a server, which describes it by the headers it is told to."""

    def __init__(self, **headers: str) -> None:
        self.headers = {name.replace("_", "-"): text for name, text in headers.items()}
        self.suffix: Reply | None = None  # the answer to a suffix range
        self.heeds_dates = True

    def __call__(self, asked: Asked) -> Reply:
        found = re.fullmatch(r"bytes=(\d*)-(\d*)", asked.headers.get("range", ""))
        if found is None:
            return Reply(200, DATA, self.headers)
        if not found[1]:
            if self.suffix is not None:
                return self.suffix
            start, stop = len(DATA) - int(found[2]), len(DATA)
        else:
            start, stop = int(found[1]), int(found[2]) + 1
        told = {"Content-Range": f"bytes {start}-{stop - 1}/{len(DATA)}", **self.headers}
        return Reply(206, DATA[start:stop], told)


@pytest.mark.parametrize("key", ["plain/a.zip", "odd//a.zip"])
def test_an_object_without_an_etag_is_pinned_by_its_date(key: str) -> None:
    """It is read, and a change is seen, also by the answer's date alone."""
    store = Store(Last_Modified=DATE)
    where = Location("s3", "bucket", key)
    with HttpServer(store) as server:
        source = stores_at(server.url).source(ANY)
        tail = source.tail(where, 100)
        assert tail.data == DATA[-100:]
        assert source.stat(where) == tail._replace(data=b"")
        assert tail.modified == 1_445_412_480  # it begins the id of a run
        archive = source.pinned(where, tail.pin)
        assert b"".join(archive.stream(ByteRange(5, 10))) == DATA[5:10]
        assert b"".join(archive.stream(ByteRange(5, 500))) == DATA[5:500]
        assert "if-unmodified-since" not in server.asked[-1].headers  # gateways refuse it
        store.headers["Last-Modified"] = LATER
        with pytest.raises(SourceChangedError):
            b"".join(archive.stream(ByteRange(5, 10)))
        with pytest.raises(SourceChangedError):
            list(archive.stream(ByteRange(5, 10)))


def test_an_object_with_nothing_to_pin_by_is_refused() -> None:
    """The message says what the store does not give, and what to do."""
    with (
        HttpServer(Store()) as server,
        pytest.raises(StorageError, match="neither an ETag nor a version nor a date"),
    ):
        stores_at(server.url).source(ANY).head(ANY)


@pytest.mark.parametrize(
    "answer",
    [
        Reply(200, DATA, {"ETag": '"e"', "Last-Modified": DATE}),
        s3_error(416, "InvalidRange"),
        s3_error(501, "NotImplemented"),
        s3_error(400, "InvalidRange"),
    ],
    ids=["whole", "416", "501", "400"],
)
def test_a_store_without_suffix_ranges(answer: Reply) -> None:
    """The source requests the size first, then a range."""
    store = Store(ETag='"e"', Last_Modified=DATE)
    store.suffix = answer
    with HttpServer(store) as server:
        tail = stores_at(server.url).source(ANY).tail(ANY, 100)
    assert (tail.data, tail.pin.size) == (DATA[-100:], len(DATA))
    assert tail.modified == 1_445_412_480.0  # DATE
