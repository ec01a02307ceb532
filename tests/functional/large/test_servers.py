"""One pass of each kind of task over real S3 servers: their checksums, copies and limits."""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from embedded.ministack import PYTHON, EmbeddedAws
from s3unzip.context import Context
from s3unzip.local.machine import Machine
from s3unzip.model import Location, Request
from s3unzip.planning.plan import Plan
from s3unzip.settings import KIB, MIB, Tuning
from s3unzip.stores.calls import LocalClock
from s3unzip.stores.factory import StoreConfig
from s3unzip.stores.s3.run_store import S3Stores
from tests import zips
from tests.functional.large.encoders import log_lines
from tests.servers import VERSITY, find_versitygw, run_versitygw

if TYPE_CHECKING:  # stubs alone
    from mypy_boto3_s3 import S3Client

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
BUCKETS = ("ingest", "members", "work")


@dataclass(frozen=True, slots=True)
class Server:
    """A running server with empty buckets."""

    stores: S3Stores
    client: S3Client


@pytest.fixture(params=["versitygw", "ministack"])
def server(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """Run one of the servers."""
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
    stores = S3Stores(StoreConfig(Location("s3", "work", ""), endpoint_url=url))
    for bucket in BUCKETS:
        stores.session.control.create_bucket(Bucket=bucket)
    return Server(stores, stores.session.control)


def test_every_kind_of_task_on_a_real_server(server: Server) -> None:
    """A stream, a copy, copies over tasks and segments: every object equal, no upload left."""
    dice = random.Random(4)
    text = b"".join(dice.choices([dice.randbytes(6).hex().encode() for _ in range(3000)], k=10**6))
    contents = {
        "stream": (text[: 6 * MIB], zips.DEFLATE),
        "zstd": (text[: 7 * MIB], zips.ZSTD),
        "copy": (dice.randbytes(5 * MIB + 7), zips.STORED),
        "copies": (dice.randbytes(13 * MIB + 1), zips.STORED),
        "segments": (log_lines(24 * MIB), zips.DEFLATE),
    }
    archive = zips.build(*(zips.Entry(name, *content) for name, content in contents.items()))
    server.client.put_object(Bucket="ingest", Key="archive.zip", Body=archive)
    context = Context(stores=server.stores, clock=LocalClock(), tuning=TUNING)
    plans: list[Plan] = []
    request = Request(Location("s3", "ingest", "archive.zip"), Location("s3", "members", ""))
    report = Machine(context).run(request, planned=plans.append)
    assert report.verdict == "COMPLETED", report
    assert plans[0].summary.kinds == {"stream": 2, "copy": 2, "scan": 1}
    assert report.requests.copy >= 4
    for name, (content, _) in contents.items():
        answer = server.client.get_object(Bucket="members", Key=f"archive/{name}")
        assert answer["Body"].read() == content, name
        assert int(answer["Metadata"]["zip-crc32"], 16) == zlib.crc32(content)
    assert not server.client.list_multipart_uploads(Bucket="members").get("Uploads")
