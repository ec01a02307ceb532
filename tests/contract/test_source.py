"""What every source promises: exact bytes of one version, or an error; and archives go once."""

import random
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace
from mypy_boto3_s3 import S3Client

from s3unzip.errors import NotFoundError, SourceChangedError, StorageError, UsageError
from s3unzip.model import Location, Pin
from s3unzip.stores.archives import read_whole_tail
from s3unzip.stores.calls import Calls
from s3unzip.stores.config import StoreConfig
from s3unzip.stores.open import OpenedStores
from s3unzip.stores.s3.aws_session import AwsSession
from s3unzip.stores.s3.session import Session
from s3unzip.stores.s3.source import S3Source
from s3unzip.zip import ByteRange
from tests.contract.places import Place
from tests.support.memory import ManualClock
from tests.support.split_zips import build_split, part_names
from tests.support.zips import Entry

DATA = random.Random(1).randbytes(3_000_001)


@pytest.mark.parametrize("data", [DATA, b"0123456789", b""])
def test_tail_gives_the_end_and_the_pin(place: Place, data: bytes) -> None:
    """The last bytes come with size and version; of a small archive all of them, or none."""
    where = place.fill("a.zip", data)
    tail = place.source.tail(where, 1_000)
    assert tail.data == data[-1_000:]
    assert tail.pin.size == len(data)
    assert tail.pin.etag
    assert place.source.head(where) == tail.pin
    assert place.source.stat(where) == tail._replace(data=b"")


def test_ranges_are_exact(place: Place) -> None:
    """Every range is the slice it names."""
    where = place.fill("a.zip", DATA)
    archive = place.source.pinned(where, place.source.head(where))
    size = len(DATA)
    spans = [(0, 1), (0, size), (size - 1, size), (1_000, 1_001), (5, 2_000_000), (7, 7)]
    for start, stop in spans:
        pieces = list(archive.stream(ByteRange(start, stop)))
        assert b"".join(pieces) == DATA[start:stop]
        assert all(len(piece) <= 4 * 1024**2 for piece in pieces)


def test_a_large_stream(place: Place) -> None:
    """Tens of MiB come in order, in pieces."""
    data = random.Random(2).randbytes(24 * 1024**2)
    where = place.fill("large.zip", data)
    archive = place.source.pinned(where, place.source.head(where))
    assert b"".join(archive.stream(ByteRange(11, len(data)))) == data[11:]


def test_overwritten_between_two_reads(place: Place) -> None:
    """The second range is refused, never mixed in."""
    where = place.fill("a.zip", DATA)
    archive = place.source.pinned(where, place.source.head(where))
    assert b"".join(archive.stream(ByteRange(0, 4))) == DATA[:4]
    place.fill("a.zip", DATA[::-1])
    with pytest.raises(SourceChangedError, match=r"a\.zip"):
        b"".join(archive.stream(ByteRange(4, 8)))


def test_deleted_between_two_reads(place: Place) -> None:
    """A deleted archive has changed."""
    where = place.fill("a.zip", DATA)
    archive = place.source.pinned(where, place.source.head(where))
    place.destination.delete([where.key])
    with pytest.raises(SourceChangedError, match=r"a\.zip"):
        b"".join(archive.stream(ByteRange(0, 4)))


def test_the_parts_of_a_split_archive(place: Place) -> None:
    """Parts beside each other are read as one, each pinned to its version."""
    entries = [Entry(f"{n}.txt", b"%d " % n * 700) for n in range(9)]
    parts = build_split(*entries, sizes=[3_000, 3_000])
    wheres = [
        place.fill(name, part)
        for name, part in zip(part_names("a", len(parts)), parts, strict=True)
    ]
    calls = Calls(ManualClock(), 1.0, 4)
    tail = read_whole_tail(place.source, wheres[-1], calls, length=1_000, max_parts=10)
    assert tail.refusal is None
    whole = b"".join(parts)
    assert tail.pin.size == len(whole)
    assert whole.endswith(tail.data)
    archive = place.source.pinned(wheres[-1], tail.pin)
    for start, stop in ((0, len(whole)), (2_999, 3_001), (3_000, 6_001), (7, 7)):
        assert b"".join(archive.stream(ByteRange(start, stop))) == whole[start:stop]
    place.fill("a.z02", parts[1][::-1])
    assert b"".join(archive.stream(ByteRange(0, 10))) == whole[:10]
    with pytest.raises(SourceChangedError, match=r"a\.z02"):
        b"".join(archive.stream(ByteRange(2_999, 3_001)))
    place.destination.delete([wheres[0].key])
    missing = read_whole_tail(place.source, wheres[-1], calls, length=1_000, max_parts=10).refusal
    assert missing is not None
    assert missing.message == "a.z01, part 1 of 3"


def test_an_archive_that_is_not_there(place: Place) -> None:
    """The error names it."""
    with pytest.raises(NotFoundError, match="nothing"):
        place.source.tail(place.at("nothing.zip"), 10)
    with pytest.raises(NotFoundError, match="nothing"):
        place.source.head(place.at("nothing.zip"))


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
    session = Session(AwsSession(StoreConfig(endpoint_url=ministack, region="us-east-1")))
    bucket, s3 = f"versions-{id(session)}", session.client("control")
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


S3 = Location("s3", "bucket", "prefix/")
WEB = Location("https", "example.org", "a.zip")


def test_an_unknown_scheme_is_refused() -> None:
    """The message says what there is."""
    stores = OpenedStores(StoreConfig(WEB))
    for ask in (
        lambda: stores.source(Location("ftp", "host", "a.zip")),
        lambda: stores.destination(WEB),
        lambda: stores.run_store("run"),
        lambda: stores.source(WEB).delete(WEB, Pin(1)),
    ):
        with pytest.raises(UsageError, match="s3://"):
            ask()


def test_a_folder_needs_no_aws(tmp_path: Path) -> None:
    """Neither boto3 nor obstore is imported until S3 is named."""
    script = f"""
import sys
from s3unzip.stores.config import StoreConfig
from s3unzip.stores.open import OpenedStores
from s3unzip.model import Location
stores = OpenedStores(StoreConfig(Location("file", "", {f"{tmp_path}/"!r})))
stores.destination(Location("file", "", {f"{tmp_path}/"!r}))
stores.run_store("run")
print([name for name in ("boto3", "botocore", "obstore", "urllib3") if name in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
