"""Backlogs on S3 servers: what a listing and an inventory name, and the record of both."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING

import pytest

from s3unzip.aws.environment import Trigger
from s3unzip.model import Location
from s3unzip.operate.backlog.listing import Listing
from s3unzip.operate.backlog.records import BacklogRecords, find_backlog
from s3unzip.operate.backlog.scope import Scope, parse_words
from s3unzip.operate.backlog.values import BacklogArchive, Ends, Queued, Sums
from s3unzip.run_files import BACKLOGS
from s3unzip.stores.s3.stores import S3Stores
from tests.contract.conftest import session_of
from tests.contract.places import Place, s3_place

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


@pytest.fixture(params=["ministack", "versitygw"])
def s3(request: pytest.FixtureRequest, aws_variables: None) -> Place:
    """An empty bucket."""
    url: str = request.getfixturevalue(request.param)
    return s3_place(request.param, session_of(url), takes_any_key=False)


def client_of(place: Place) -> S3Client:
    """Return a client of the place's server."""
    assert isinstance(place.stores, S3Stores)
    return place.stores.session.control


def test_what_words_name(s3: Place) -> None:
    """Prefixes, globs and inventories name the same keys, odd ones included."""
    keys = [s3.key(name) for name in ("a.zip", "b/c d.zip", "b/späße+1 %41.zip", "b/no.txt")]
    for key in keys:
        client_of(s3).put_object(Bucket=s3.root.bucket, Key=key, Body=b"x")
    rows = "".join(f'"{s3.root.bucket}","{_encode(key)}"\n' for key in keys)
    manifest = {
        "sourceBucket": s3.root.bucket,
        "destinationBucket": f"arn:aws:s3:::{s3.root.bucket}",
        "fileFormat": "CSV",
        "fileSchema": "Bucket, Key",
        "files": [{"key": s3.key("list.csv.gz")}],
    }
    for name, body in (
        ("list.csv.gz", gzip.compress(rows.encode())),
        ("manifest.json", json.dumps(manifest).encode()),
    ):
        client_of(s3).put_object(Bucket=s3.root.bucket, Key=s3.key(name), Body=body)
    scope = Scope("dev", Trigger(s3.root.bucket, s3.root.key, ".zip"))
    root = f"s3://{s3.root.bucket}/{s3.root.key}"
    found = {
        word: list(Listing(client_of(s3), scope).keys(parse_words([root + word], scope)))
        for word in ("", "b/*.zip", "**.zip", "manifest.json")
    }
    assert found == {
        "": keys[:3],
        "b/*.zip": keys[1:3],
        "**.zip": keys[:3],
        "manifest.json": keys[:3],
    }


def _encode(key: str) -> str:
    """Return a key as S3 Inventory writes it."""
    plain = b"abcdefghijklmnopqrstuvwxyz0123456789-_./"
    return "".join(chr(one) if one in plain else f"%{one:02X}" for one in key.encode())


def test_the_record_of_a_backlog(s3: Place) -> None:
    """Lists, progress and ends come back as they were, and backlogs are found by their ids."""
    records = BacklogRecords(s3.stores.run_store(BACKLOGS))
    archives = [BacklogArchive(f"späße {n}.zip", f"run-{n}", n) for n in range(1_000)]
    first, second = "20260101-000000-aaaa", "20260102-000000-bbbb"
    for name in (first, second):
        records.write_list(name, 0, archives)
    assert records.read_list(first, 0) == archives
    assert records.read_queued(first) == Queued()
    records.write_queued(first, Queued(1, 1_000))
    assert records.read_queued(first) == Queued(1, 1_000)
    ends = Ends(Sums(archives=998, dollars=0.1), tuple(archives[:2]))
    records.write_ends(first, 0, ends)
    assert records.find_ends(first, 0) == ends
    assert records.find_ends(second, 0) is None
    work = Location("s3", s3.root.bucket, "work/")
    assert find_backlog(client_of(s3), work, "latest") == second
    assert find_backlog(client_of(s3), work, "20260101") == first
