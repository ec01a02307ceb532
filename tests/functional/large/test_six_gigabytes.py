"""6 GB with ZIP64 in every field, S3 to S3: the slow form, and a scaled-down one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import boto3
import pytest
from msgspec.structs import replace

from bench.server import find_versitygw, s3_server
from embedded.ministack import PYTHON, EmbeddedAws
from s3unzip.context import Context
from s3unzip.local.machine import Machine, Setup
from s3unzip.model import Location, PlanSummary, Request
from s3unzip.settings import MIB, Tuning
from s3unzip.stores.clock import LocalClock
from s3unzip.stores.factory import StoreConfig
from s3unzip.stores.s3.run_store import S3Stores
from s3unzip.zip import Policy
from tests.functional.large.huge import SMALL, check, write_archive
from tests.runs import run_in_process
from tests.servers import VERSITY

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


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
        home = Location("file", "", f"{tmp_path}/home/")
        setup = Setup(StoreConfig(home), Policy(), Tuning(max_workers=2), 2)
        plans: list[PlanSummary] = []
        with Machine(setup, SOURCE, DESTINATION) as machine:
            report = machine.run(
                Request(SOURCE, DESTINATION), planned=lambda plan: plans.append(plan.summary)
            )
        record_property("seconds", report.finished - report.started)
        record_property("requests", str(report.requests))
        assert plans[0].kinds == {"scan": 1, "copy": 1, "batch": SMALL}
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
        client = stores.session.control
        for bucket in ("source", "ours", "work"):
            client.create_bucket(Bucket=bucket)
        client.put_object(Bucket="source", Key=SOURCE.key, Body=path.read_bytes())
        context = Context(stores=stores, clock=LocalClock(), tuning=tuning)
        report, plan = run_in_process(Request(SOURCE, DESTINATION), context)
        assert plan.kinds == {"scan": 1, "copy": 1, "batch": 100}
        check(client, "ours", report, large, 100)
