"""6 GB with ZIP64 in every field, S3 to S3: the slow form, and a scaled-down one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import boto3
import pytest
from msgspec.structs import replace

from bench.server import find_versitygw, s3_server
from embedded.ministack import PYTHON, EmbeddedAws
from s3unzip.context import Context
from s3unzip.local.machine import Machine
from s3unzip.local.workers import Workers, open_context
from s3unzip.model import Location, Request
from s3unzip.planning.plan import Plan
from s3unzip.settings import MIB, Tuning
from s3unzip.stores.calls import LocalClock
from s3unzip.stores.factory import StoreConfig
from s3unzip.stores.s3.run_store import S3Stores
from s3unzip.zip import Policy
from tests.functional.large.huge import SMALL, check, write_archive
from tests.servers import VERSITY

SOURCE, DESTINATION = Location("s3", "source", "huge.zip"), Location("s3", "ours", "")


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_six_gigabytes_between_buckets(
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
) -> None:
    """At the default settings, by two worker processes; every byte is read back."""
    if "slow" not in request.config.getoption("markexpr"):
        pytest.skip("takes minutes and 30 GB of disk: pytest -m slow")
    if find_versitygw() is None:
        pytest.skip("VersityGW is not installed: go install github.com/versity/versitygw/...")
    for name in ("AWS_ENDPOINT_URL", *VERSITY, "AWS_REGION", "AWS_DEFAULT_REGION", "S3UNZIP_HOME"):
        monkeypatch.setenv(name, "")  # what the server sets is gone after the test
    path = tmp_path / "huge.zip"
    large = write_archive(path, 1.0)
    record_property("archive_bytes", path.stat().st_size)
    assert path.stat().st_size > 5_500_000_000
    assert large["deflated.bin"].size > 5 * 10**9
    with s3_server():
        client = boto3.client("s3")
        for bucket in ("source", "ours"):
            client.create_bucket(Bucket=bucket)
        client.upload_file(str(path), "source", SOURCE.key)
        path.unlink()
        config = StoreConfig(Location("file", "", f"{tmp_path}/home/"))
        opening = partial(open_context, config, Policy(), Tuning())
        context = opening(LocalClock(), None)
        plans: list[Plan] = []
        with Machine(context, Workers(2, context, opening)) as machine:
            wanted = Request(SOURCE, DESTINATION)
            report = machine.run(wanted, planned=plans.append)
        record_property("seconds", report.finished - report.started)
        record_property("requests", str(report.requests))
        assert plans[0].summary.kinds == {"scan": 1, "copy": 1, "batch": SMALL}
        check(client, "ours", report, large, SMALL)


def test_the_same_scaled_down_on_the_embedded_aws(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundredth of it on MiniStack, cut as finely as the store's least parts allow."""
    if not PYTHON.exists():
        pytest.skip("MiniStack is not installed: uv sync --project embedded --frozen")
    for name, value in {**VERSITY, "AWS_DEFAULT_REGION": "us-east-1"}.items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_SESSION_TOKEN", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    path = tmp_path / "huge.zip"
    large = write_archive(path, 0.01)
    tuning = replace(Tuning(), split_from=8 * MIB, segment_bytes=4 * MIB, part_bytes=5 * MIB)
    with EmbeddedAws() as aws:
        stores = S3Stores(StoreConfig(Location("s3", "work", ""), endpoint_url=aws.endpoint))
        client = boto3.client("s3", endpoint_url=aws.endpoint)
        for bucket in ("source", "ours", "work"):
            client.create_bucket(Bucket=bucket)
        client.upload_file(str(path), "source", SOURCE.key)
        context = Context(stores=stores, clock=LocalClock(), tuning=tuning)
        plans: list[Plan] = []
        wanted = Request(SOURCE, DESTINATION)
        report = Machine(context).run(wanted, planned=plans.append)
        assert plans[0].summary.kinds == {"scan": 1, "copy": 1, "batch": 100}
        check(client, "ours", report, large, 100)
