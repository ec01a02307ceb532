"""S3 itself, as far as the emulators go: versions, credentials, missing buckets."""

from collections.abc import Callable

import pytest
from mypy_boto3_s3 import S3Client

from s3unzip.errors import AccessDeniedError, NotFoundError
from s3unzip.model import Location
from s3unzip.stores import Stores
from s3unzip.stores.config import StoreConfig
from s3unzip.stores.open import OpenedStores
from s3unzip.stores.ports import CopiesParts, Upload
from s3unzip.zip import ByteRange
from tests.contract.conftest import session_of
from tests.contract.places import FACTS, Place, list_all, s3_place, stores_at

MIB = 1024**2


@pytest.fixture(params=["ministack", "versitygw"])
def s3(request: pytest.FixtureRequest, aws_variables: None) -> Place:
    url: str = request.getfixturevalue(request.param)
    return s3_place(request.param, session_of(url), takes_any_key=False)


def _control(place: Place) -> S3Client:
    assert place.session is not None
    return place.session.control


def test_a_pinned_version_outlives_an_overwrite(s3: Place) -> None:
    """With versioning on, the version that was planned is read to its end."""
    _control(s3).put_bucket_versioning(
        Bucket=s3.root.bucket, VersioningConfiguration={"Status": "Enabled"}
    )
    old, new = b"old" * 3 * MIB, b"new" * 3 * MIB
    where = s3.fill("a.zip", old)
    pin = s3.source.tail(where, 10).pin
    assert pin.version_id
    assert s3.source.head(where) == pin
    s3.fill("a.zip", new)
    assert s3.source.head(where) != pin
    archive = s3.source.pinned(where, pin)
    assert b"".join(archive.stream(ByteRange(3, 9))) == b"oldold"
    assert b"".join(archive.stream(ByteRange(0, len(old)))) == old
    upload = Upload(s3.key("copy"), s3.destination.create_upload(s3.key("copy"), FACTS))
    assert isinstance(s3.destination, CopiesParts)
    part = s3.destination.copy_part(upload, 1, 0, where, pin, ByteRange(0, len(old)))
    s3.destination.complete_upload(upload, [part], if_absent=False)
    assert b"".join(s3.destination.read(s3.key("copy"))) == old


def test_type_encoding_and_metadata_are_stored(s3: Place) -> None:
    """Type, encoding and metadata are kept by single and by multipart uploads."""
    facts = FACTS.__class__("text/csv", {"zip-crc32": "cbf43926", "mode": "644"}, "gzip")
    s3.fill("single", b"123456789", facts)
    upload = Upload(s3.key("parts"), s3.destination.create_upload(s3.key("parts"), facts))
    part = s3.destination.upload_part(upload, 1, 0, b"123456789", 0xCBF43926)
    s3.destination.complete_upload(upload, [part], if_absent=True)
    for name in ("single", "parts"):
        answer = _control(s3).head_object(Bucket=s3.root.bucket, Key=s3.key(name))
        assert answer["ContentType"] == "text/csv"
        assert answer["ContentEncoding"] == "gzip"
        assert answer["Metadata"] == {"zip-crc32": "cbf43926", "mode": "644"}


def test_the_store_verifies_what_it_gets(s3: Place) -> None:
    """A single PUT is stored with its CRC64NVME, a part with a wrong CRC-32 is refused."""
    s3.fill("a", b"123456789")
    answer = _control(s3).head_object(
        Bucket=s3.root.bucket, Key=s3.key("a"), ChecksumMode="ENABLED"
    )
    assert answer["ChecksumCRC64NVME"] == "rosUhgp5mIg="
    upload = Upload(s3.key("b"), s3.destination.create_upload(s3.key("b"), FACTS))
    with pytest.raises(Exception, match=r"s3:PutObject s3://bucket.*/b: \w+"):
        s3.destination.upload_part(upload, 1, 0, b"flipped", 1)
    s3.destination.abort_upload(upload)


CALLS: list[Callable[[Stores, Location], object]] = [
    lambda stores, where: stores.source(where).tail(where, 10),
    lambda stores, where: stores.source(where).head(where),
    lambda stores, where: stores.destination(where).put("k", b"", FACTS, if_absent=False),
    lambda stores, where: list_all(stores.destination(where), ""),
    lambda stores, where: stores.destination(where).create_upload("k", FACTS),
]


@pytest.mark.parametrize("call", CALLS)
def test_a_missing_bucket(s3: Place, call: Callable[[Stores, Location], object]) -> None:
    """Every call says which bucket there is not."""
    stores = OpenedStores(StoreConfig(Location("s3", "no-such-bucket", "")), s3.session)
    with pytest.raises(NotFoundError, match="no-such-bucket"):
        call(stores, Location("s3", "no-such-bucket", "a.zip"))


@pytest.mark.parametrize("call", [CALLS[0], *CALLS[2:]])  # VersityGW's HEAD does not say why
@pytest.mark.parametrize("variable", ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"])
def test_bad_credentials(
    versitygw: str,
    monkeypatch: pytest.MonkeyPatch,
    variable: str,
    call: Callable[[Stores, Location], object],
) -> None:
    """A server that checks credentials refuses them, and the message says which to check."""
    monkeypatch.setenv(variable, "wrong")
    with pytest.raises(AccessDeniedError) as caught:
        call(stores_at(versitygw), Location("s3", "bucket-of-none", "a.zip"))
    assert "testtest" not in str(caught.value)
