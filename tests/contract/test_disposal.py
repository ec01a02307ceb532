"""What becomes of an extracted archive, on every store: only the pinned version is touched."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from s3unzip.errors import ConflictError, NotFoundError, SourceChangedError, StorageError
from s3unzip.model import Location, Pin
from s3unzip.stores.disposal.objects import MAX_COPY, S3Disposal
from s3unzip.stores.s3.access import S3Access
from s3unzip.stores.s3.session import Session

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

    from tests.contract.places import Place

RUN, OTHER_RUN = "a-0123456789abcdef0123", "a-ffffffffffffffffffff"


def is_there(place: Place, location: Location) -> bool:
    """Say whether something is at `location`."""
    try:
        place.source.head(location)
    except NotFoundError:
        return False
    return True


def test_a_version_is_deleted_once(place: Place) -> None:
    """The archive is gone, and a second attempt finds that."""
    where = place.fill("a.zip", b"first")
    pin = place.source.head(where)
    for _ in range(2):
        place.stores.disposal(where).delete(where, pin)
        assert not is_there(place, where)


def test_a_newer_archive_is_never_deleted(place: Place) -> None:
    """What was put over the archive since its run stays."""
    where = place.fill("a.zip", b"first")
    pin = place.source.head(where)
    place.fill("a.zip", b"second one")
    with pytest.raises(SourceChangedError, match="newer"):
        place.stores.disposal(where).delete(where, pin)
    assert place.source.tail(where, 100).data == b"second one"


def test_a_version_is_moved_once(place: Place) -> None:
    """The bytes are at the target, the archive is gone, and a second attempt finds that."""
    where = place.fill("in/a.zip", b"first")
    target = place.at("done/deep/a.zip")
    pin = place.source.head(where)
    for _ in range(2):
        place.stores.disposal(where).move(where, pin, target, RUN)
        assert not is_there(place, where)
        assert place.source.tail(target, 100).data == b"first"


def test_a_move_that_was_cut_off_is_finished(place: Place) -> None:
    """Where the copy is there and the archive too, the archive is deleted."""
    where, target = place.fill("in/a.zip", b"first"), place.at("done/a.zip")
    place.stores.disposal(where).move(where, place.source.head(where), target, RUN)
    place.fill("in/a.zip", b"first")
    place.stores.disposal(where).move(where, place.source.head(where), target, RUN)
    assert not is_there(place, where)
    assert place.source.tail(target, 100).data == b"first"


def test_a_newer_archive_is_never_moved(place: Place) -> None:
    """What was put over the archive since its run stays where it is."""
    where, target = place.fill("in/a.zip", b"first"), place.at("done/a.zip")
    pin = place.source.head(where)
    place.fill("in/a.zip", b"second one")
    with pytest.raises(SourceChangedError):
        place.stores.disposal(where).move(where, pin, target, RUN)
    assert place.source.tail(where, 100).data == b"second one"
    assert not is_there(place, target)


def test_a_move_overwrites_nothing(place: Place) -> None:
    """Another archive at the target stays, and so does this one."""
    where, target = place.fill("in/a.zip", b"first"), place.fill("done/a.zip", b"another")
    with pytest.raises(ConflictError, match="exists already"):
        place.stores.disposal(where).move(where, place.source.head(where), target, RUN)
    assert place.source.tail(where, 100).data == b"first"
    assert place.source.tail(target, 100).data == b"another"


def test_an_archive_that_is_gone_cannot_be_moved(place: Place) -> None:
    """Somebody deleted it before: that is not a move."""
    where, target = place.fill("in/a.zip", b"first"), place.at("done/a.zip")
    pin = place.source.head(where)
    place.stores.disposal(where).delete(where, pin)
    with pytest.raises(SourceChangedError, match="gone"):
        place.stores.disposal(where).move(where, pin, target, RUN)


@pytest.fixture
def versions(ministack: str) -> tuple[Session, str]:
    """A bucket that keeps versions."""
    session = Session(S3Access(ministack, "us-east-1"))
    bucket = f"versions-{id(session)}"
    session.control.create_bucket(Bucket=bucket)
    session.control.put_bucket_versioning(
        Bucket=bucket, VersioningConfiguration={"Status": "Enabled"}
    )
    return session, bucket


def put(s3: S3Client, bucket: str, key: str, body: bytes) -> Pin:
    """Put an archive; return its pin."""
    answer = s3.put_object(
        Bucket=bucket,
        Key=key,
        Body=body,
        ContentType="application/zip",
        CacheControl="no-store",
        Metadata={"from": "a test"},
        Tagging="team=red",
    )
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
    pin = put(s3, bucket, "a.zip", b"first")
    put(s3, bucket, "a.zip", b"second")
    for _ in range(2):
        S3Disposal(session).delete(where, pin)
        assert bodies(s3, bucket) == [b"second"]


def test_one_version_of_several_is_moved_with_what_belongs_to_it(
    versions: tuple[Session, str],
) -> None:
    """The copy has the headers, the metadata and the tags of the version, and the run's id."""
    session, bucket = versions
    s3, where = session.control, Location("s3", bucket, "a.zip")
    pin = put(s3, bucket, "a.zip", b"first")
    put(s3, bucket, "a.zip", b"second")
    S3Disposal(session).move(where, pin, Location("s3", bucket, "done/a.zip"), RUN)
    assert bodies(s3, bucket) == [b"first", b"second"]
    moved = s3.get_object(Bucket=bucket, Key="done/a.zip")
    assert moved["Body"].read() == b"first"
    assert (moved["ContentType"], moved["CacheControl"]) == ("application/zip", "no-store")
    assert moved["Metadata"] == {"from": "a test", "s3unzip-run": RUN}
    tags = s3.get_object_tagging(Bucket=bucket, Key="done/a.zip")["TagSet"]
    assert tags == [{"Key": "team", "Value": "red"}]


def test_one_version_of_several_is_tagged(versions: tuple[Session, str]) -> None:
    """Tags are added to those of the version that was extracted, and to no other."""
    session, bucket = versions
    s3, where = session.control, Location("s3", bucket, "a.zip")
    pin = put(s3, bucket, "a.zip", b"first")
    newer = put(s3, bucket, "a.zip", b"second")
    for _ in range(2):
        S3Disposal(session).tag(where, pin, {"state": "extracted"})
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
    pin = put(s3, bucket, "a.zip", b"first")
    disposal = S3Disposal(session)
    with pytest.raises(StorageError, match="would have 11 tags, and S3 allows 10"):
        disposal.tag(where, pin, {str(number): "x" for number in range(10)})
    with pytest.raises(StorageError, match="bucket without versioning"):
        disposal.tag(where, replace(pin, version_id="null"), {"a": "b"})
    disposal.delete(where, pin)
    with pytest.raises(SourceChangedError, match="gone"):
        disposal.tag(where, pin, {"a": "b"})


def test_what_cannot_be_moved(versions: tuple[Session, str]) -> None:
    """More than one CopyObject takes, and a target that does not exist, are refused."""
    session, bucket = versions
    s3, where = session.control, Location("s3", bucket, "a.zip")
    pin = put(s3, bucket, "a.zip", b"first")
    target = Location("s3", bucket, "done/a.zip")
    with pytest.raises(StorageError, match="at most 5 GiB in one request"):
        S3Disposal(session).move(where, replace(pin, size=MAX_COPY + 1), target, RUN)
    with pytest.raises(StorageError, match="NoSuchBucket"):
        S3Disposal(session).move(where, pin, replace(target, bucket="none-there"), RUN)
    assert bodies(s3, bucket) == [b"first"]


def test_an_archive_without_version_and_etag_is_left(versions: tuple[Session, str]) -> None:
    """A date alone cannot tell a newer archive apart."""
    session, bucket = versions
    put(session.control, bucket, "a.zip", b"first")
    where = Location("s3", bucket, "a.zip")
    for pin in (Pin(5), Pin(5, "Mon, 01 Jan 2024 00:00:00 GMT")):
        with pytest.raises(StorageError, match="neither versions nor ETags"):
            S3Disposal(session).delete(where, pin)
    assert bodies(session.control, bucket) == [b"first"]


@pytest.mark.parametrize("place", ["folder"], indirect=True)
def test_a_file_has_no_tags(place: Place) -> None:
    """The refusal says what to do instead."""
    where = place.fill("a.zip", b"first")
    with pytest.raises(StorageError, match="delete or move it instead"):
        place.stores.disposal(where).tag(where, place.source.head(where), {"a": "b"})


def test_another_run_does_not_take_a_moved_archive_for_its_own(
    versions: tuple[Session, str],
) -> None:
    """Two archives with one name do not replace each other."""
    session, bucket = versions
    s3, target = session.control, Location("s3", bucket, "done/a.zip")
    where = Location("s3", bucket, "a.zip")
    S3Disposal(session).move(where, put(s3, bucket, "a.zip", b"first"), target, RUN)
    with pytest.raises(ConflictError, match="exists already"):
        S3Disposal(session).move(where, put(s3, bucket, "a.zip", b"other"), target, OTHER_RUN)
    assert bodies(s3, bucket) == [b"first", b"other"]
