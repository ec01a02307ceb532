"""One pass of each kind of task over real S3 servers: their checksums, copies and limits."""

import random
import zlib
from collections.abc import Iterator
from functools import cache

import pytest
from mypy_boto3_s3 import S3Client

from embedded.ministack import PYTHON, EmbeddedAws
from s3unzip.model import Location, Request
from s3unzip.planning.plan import Plan
from s3unzip.settings import KIB, MIB, Tuning
from s3unzip.stores import Stores
from s3unzip.stores.clock import LocalClock
from s3unzip.stores.config import StoreConfig
from s3unzip.stores.open import open_stores
from s3unzip.stores.s3.session import Session
from tests.support import zips
from tests.support.contents import log_lines
from tests.support.runs import World
from tests.support.servers import VERSITY, find_versitygw, run_versitygw

TUNING = Tuning(
    small_member=64 * KIB,
    copy_from=5 * MIB,
    copy_task_bytes=6 * MIB,
    copy_part_bytes=5 * MIB,
    split_from=3 * MIB,
    segment_bytes=2 * MIB,
    part_bytes=5 * MIB,
    read_piece=1 * MIB,
)


Server = tuple[Stores, S3Client]


@pytest.fixture(params=["versitygw", "ministack"])
def server(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """Run one of the servers, with empty buckets."""
    for name, value in {**VERSITY, "AWS_DEFAULT_REGION": "us-east-1"}.items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_SESSION_TOKEN", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    if request.param == "versitygw":
        if find_versitygw() is None:
            pytest.skip("VersityGW is not installed: go install github.com/versity/versitygw/...")
        with run_versitygw() as (url, _):
            yield open_server(url)
        return
    if not PYTHON.exists():
        pytest.skip("MiniStack is not installed: uv sync --project embedded --frozen")
    with EmbeddedAws() as aws:
        yield open_server(aws.endpoint)


def open_server(url: str) -> Server:
    """Return the stores of a server, its buckets made."""
    config = StoreConfig(Location("s3", "work", ""), endpoint_url=url)
    session = Session(config)
    for bucket in ("ingest", "members", "work"):
        session.control.create_bucket(Bucket=bucket)
    return open_stores(config, session), session.control


@cache
def make_archive() -> tuple[dict[str, bytes], bytes]:
    """Return the members of an archive, and the archive."""
    dice, text = random.Random(4), log_lines(4 * MIB)
    contents = {
        "stream": (text + text[:MIB], zips.DEFLATE),
        "zstd": (text + text[: 3 * MIB], zips.ZSTD),
        "copy": (dice.randbytes(5 * MIB + 7), zips.STORED),
        "copies": (dice.randbytes(13 * MIB + 1), zips.STORED),
        "segments": (text * 6, zips.DEFLATE),
    }
    archive = zips.build(*(zips.Entry(name, *content) for name, content in contents.items()))
    return {name: content for name, (content, _) in contents.items()}, archive


def test_every_kind_of_task_on_a_real_server(server: Server) -> None:
    """A stream, a copy, copies over tasks and segments: every object equal, no upload left."""
    contents, archive = make_archive()
    stores, client = server
    client.put_object(Bucket="ingest", Key="archive.zip", Body=archive)
    world, plans = World(TUNING, stores=stores, clock=LocalClock()), list[Plan]()
    request = Request(Location("s3", "ingest", "archive.zip"), Location("s3", "members", ""))
    report = world.run_here(request, plans.append)
    assert report.verdict == "COMPLETED", report
    assert plans[0].summary.kinds == {"stream": 2, "copy": 2, "scan": 1}
    assert report.requests.copy >= 4
    for name, content in contents.items():
        answer = client.get_object(Bucket="members", Key=f"archive/{name}")
        assert answer["Body"].read() == content, name
        assert int(answer["Metadata"]["zip-crc32"], 16) == zlib.crc32(content)
    assert not client.list_multipart_uploads(Bucket="members").get("Uploads")
