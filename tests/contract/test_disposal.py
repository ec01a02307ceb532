"""What becomes of an extracted archive, on every store: only the pinned version is touched."""

import pytest
from msgspec.structs import replace
from mypy_boto3_s3 import S3Client

from s3unzip.errors import NotFoundError, SourceChangedError, StorageError
from s3unzip.model import Location, Pin
from s3unzip.stores.factory import StoreConfig
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


@pytest.fixture
def versions(ministack: str) -> tuple[Session, str]:
    """A bucket that keeps versions."""
    session = Session(StoreConfig(endpoint_url=ministack, region="us-east-1"))
    bucket = f"versions-{id(session)}"
    session.control.create_bucket(Bucket=bucket)
    session.control.put_bucket_versioning(
        Bucket=bucket, VersioningConfiguration={"Status": "Enabled"}
    )
    return session, bucket


def put(s3: S3Client, bucket: str, body: bytes) -> Pin:
    """Put the archive ``a.zip``; return its pin."""
    answer = s3.put_object(Bucket=bucket, Key="a.zip", Body=body, Tagging="team=red")
    return Pin(len(body), answer["ETag"], answer["VersionId"])


def bodies(s3: S3Client, bucket: str) -> list[bytes]:
    """Return what all versions of a bucket hold; delete markers are none."""
    found = s3.list_object_versions(Bucket=bucket).get("Versions", [])
    return sorted(
        s3.get_object(Bucket=bucket, Key=one["Key"], VersionId=one["VersionId"])["Body"].read()
        for one in found
    )


def test_one_version_of_several_is_deleted(versions: tuple[Session, str]) -> None:
    """The newer version stays, and the older one is gone for good."""
    session, bucket = versions
    s3, where = session.control, Location("s3", bucket, "a.zip")
    pin = put(s3, bucket, b"first")
    put(s3, bucket, b"second")
    for _ in range(2):
        S3Source(session).delete(where, pin)
        assert bodies(s3, bucket) == [b"second"]


def test_one_version_of_several_is_tagged(versions: tuple[Session, str]) -> None:
    """Tags are added to those of the version that was extracted, and to no other."""
    session, bucket = versions
    s3, where = session.control, Location("s3", bucket, "a.zip")
    pin = put(s3, bucket, b"first")
    newer = put(s3, bucket, b"second")
    for _ in range(2):
        S3Source(session).tag(where, pin, {"state": "extracted"})
    assert tags_of(s3, where, pin) == {"team": "red", "state": "extracted"}
    assert tags_of(s3, where, newer) == {"team": "red"}


def tags_of(s3: S3Client, where: Location, pin: Pin) -> dict[str, str]:
    """Return the tags of one version."""
    answer = s3.get_object_tagging(
        Bucket=where.bucket, Key=where.key, VersionId=str(pin.version_id)
    )
    return {tag["Key"]: tag["Value"] for tag in answer["TagSet"]}


def test_what_cannot_be_tagged(versions: tuple[Session, str]) -> None:
    """Too many tags, a version that is gone, and a bucket without versions are refused."""
    session, bucket = versions
    s3, where = session.control, Location("s3", bucket, "a.zip")
    pin = put(s3, bucket, b"first")
    disposal = S3Source(session)
    with pytest.raises(StorageError, match="would have 11 tags, and S3 allows 10"):
        disposal.tag(where, pin, {str(number): "x" for number in range(10)})
    with pytest.raises(StorageError, match="bucket without versioning"):
        disposal.tag(where, replace(pin, version_id="null"), {"a": "b"})
    disposal.delete(where, pin)
    with pytest.raises(SourceChangedError, match="gone"):
        disposal.tag(where, pin, {"a": "b"})


def test_an_archive_without_version_and_etag_is_left(versions: tuple[Session, str]) -> None:
    """A date alone cannot tell a newer archive apart."""
    session, bucket = versions
    put(session.control, bucket, b"first")
    where = Location("s3", bucket, "a.zip")
    for pin in (Pin(5), Pin(5, "Mon, 01 Jan 2024 00:00:00 GMT")):
        with pytest.raises(StorageError, match="neither versions nor ETags"):
            S3Source(session).delete(where, pin)
    assert bodies(session.control, bucket) == [b"first"]


@pytest.mark.parametrize("place", ["folder"], indirect=True)
def test_a_file_has_no_tags(place: Place) -> None:
    """The refusal says what to do instead."""
    where = place.fill("a.zip", b"first")
    with pytest.raises(StorageError, match="delete it instead"):
        place.source.tag(where, place.source.head(where), {"a": "b"})
