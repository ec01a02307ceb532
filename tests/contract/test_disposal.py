"""What becomes of an extracted archive, on every store: only the pinned version is touched."""

import pytest
from msgspec.structs import replace
from mypy_boto3_s3 import S3Client

from s3unzip.errors import NotFoundError, SourceChangedError, StorageError
from s3unzip.model import Location, Pin
from s3unzip.stores.config import StoreConfig
from s3unzip.stores.s3.session import Session
from s3unzip.stores.s3.source import S3Source
from tests.contract.places import Place


def test_a_version_is_deleted_once(place: Place) -> None:
    """The archive is gone, and a second attempt finds that."""
    where = place.fill("a.zip", b"first")
    pin = place.source.head(where)
    for _ in range(2):
        place.source.delete(where, pin)
        with pytest.raises(NotFoundError):
            place.source.head(where)


def test_a_newer_archive_is_never_deleted(place: Place) -> None:
    """What was put over the archive since its run stays."""
    where = place.fill("a.zip", b"first")
    pin = place.source.head(where)
    place.fill("a.zip", b"second one")
    with pytest.raises(SourceChangedError, match="newer"):
        place.source.delete(where, pin)
    assert place.source.tail(where, 100).data == b"second one"


Versions = tuple[S3Client, S3Source, Location]


@pytest.fixture
def versions(ministack: str) -> Versions:
    """A place for an archive in a bucket that keeps versions."""
    session = Session(StoreConfig(endpoint_url=ministack, region="us-east-1"))
    bucket, s3 = f"versions-{id(session)}", session.control
    s3.create_bucket(Bucket=bucket)
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    return s3, S3Source(session), Location("s3", bucket, "a.zip")


def _put(s3: S3Client, where: Location, body: bytes) -> Pin:
    answer = s3.put_object(Bucket=where.bucket, Key=where.key, Body=body, Tagging="team=red")
    return Pin(len(body), answer["ETag"], answer["VersionId"])


def bodies(s3: S3Client, bucket: str) -> list[bytes]:
    """Return what all versions of a bucket hold; delete markers are none."""
    found = s3.list_object_versions(Bucket=bucket).get("Versions", [])
    return sorted(
        s3.get_object(Bucket=bucket, Key=one["Key"], VersionId=one["VersionId"])["Body"].read()
        for one in found
    )


def test_one_version_of_several_is_deleted(versions: Versions) -> None:
    """The newer version stays, and the older one is gone for good."""
    s3, source, where = versions
    pin = _put(s3, where, b"first")
    _put(s3, where, b"second")
    for _ in range(2):
        source.delete(where, pin)
        assert bodies(s3, where.bucket) == [b"second"]


def test_one_version_of_several_is_tagged(versions: Versions) -> None:
    """Tags are added to those of the version that was extracted, and to no other."""
    s3, source, where = versions
    pins = [_put(s3, where, body) for body in (b"first", b"second")]
    for _ in range(2):
        source.tag(where, pins[0], {"state": "extracted"})
    tags = [source.tags(where, pin) for pin in pins]
    assert tags == [{"team": "red", "state": "extracted"}, {"team": "red"}]


def test_tagging_is_refused(versions: Versions) -> None:
    """Too many tags, a version that is gone, and a bucket without versions are refused."""
    s3, source, where = versions
    pin = _put(s3, where, b"first")
    with pytest.raises(StorageError, match="would have 11 tags, and S3 allows 10"):
        source.tag(where, pin, {str(number): "x" for number in range(10)})
    with pytest.raises(StorageError, match="bucket without versioning"):
        source.tag(where, replace(pin, version_id="null"), {"a": "b"})
    source.delete(where, pin)
    with pytest.raises(SourceChangedError, match="gone"):
        source.tag(where, pin, {"a": "b"})


def test_an_archive_without_version_and_etag_is_left(versions: Versions) -> None:
    """A date alone cannot tell a newer archive apart."""
    s3, source, where = versions
    _put(s3, where, b"first")
    for pin in (Pin(5), Pin(5, "Mon, 01 Jan 2024 00:00:00 GMT")):
        with pytest.raises(StorageError, match="neither versions nor ETags"):
            source.delete(where, pin)
    assert bodies(s3, where.bucket) == [b"first"]


@pytest.mark.parametrize("place", ["folder"], indirect=True)
def test_a_file_has_no_tags(place: Place) -> None:
    """The refusal says what to do instead."""
    where = place.fill("a.zip", b"first")
    with pytest.raises(StorageError, match="delete it instead"):
        place.source.tag(where, place.source.head(where), {"a": "b"})
    assert place.source.tags(where, place.source.head(where)) == {}
