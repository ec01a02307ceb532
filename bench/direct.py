"""Forecast against measured for direct runs: the plan function on the strict embedded AWS.

The function reaches S3 through a proxy that adds a known latency to each request. The forecast
gets the measured latency of a few requests through the proxy, and no data of the runs. The seconds
are from the function's first request until its report is written. `forecast.error.<case>` is
forecast / measured - 1; the aim is 0.2.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import boto3
from botocore.exceptions import ClientError
from msgspec.structs import replace

from bench.measure import median
from bench.zipped import random_archive
from embedded.deploy import start_aws, synthesize
from embedded.pipeline import DeployedPipeline
from s3unzip import rates
from s3unzip.forecast import (
    Fixture,
    Latency,
    make_fixture,
    make_forecast,
    merge_tasks,
    one_function,
)
from s3unzip.settings import KIB, Tuning
from tests.faults.proxy import FaultProxy
from tests.faults.rules import Shape

if TYPE_CHECKING:
    from collections.abc import Iterator

LATENCY = 0.2  # seconds; far more than the embedded S3 itself takes for a request
PROBES = 20  # requests that are timed
REPEATS = 3  # archives of each case


@dataclass(frozen=True, slots=True)
class DirectCase:
    """An archive of equal members."""

    name: str
    members: int
    size: int  # bytes of each, stored


CASES = (
    DirectCase("direct_1", 1, 2 * KIB),
    DirectCase("direct_100", 100, 2 * KIB),
    DirectCase("direct_500", 500, 2 * KIB),  # above `tail_bytes`: one more request
)


def measure_direct() -> Iterator[tuple[str, float, float]]:
    """Yield name, forecast and measured seconds of each case."""
    with tempfile.TemporaryDirectory(prefix="s3unzip-bench-") as folder:
        assembly = synthesize("dev", Path(folder))
        with start_aws() as aws:
            port = urlsplit(aws.endpoint).port
            assert port is not None
            pipeline = DeployedPipeline.create(assembly, aws.environment)
            with FaultProxy(port, shape=Shape(latency=LATENCY)) as proxy:
                _slow_down(pipeline, proxy)
                latency = probe_latency(pipeline, proxy)
                _measure(pipeline, proxy, CASES[0], "first")  # the cold start
                for case in CASES:
                    seconds = [
                        _measure(pipeline, proxy, case, f"{number}") for number in range(REPEATS)
                    ]
                    yield case.name, _forecast(case, latency), median(seconds)


def _slow_down(pipeline: DeployedPipeline, proxy: FaultProxy) -> None:
    """Let the plan function reach S3 through the proxy."""
    functions, name = pipeline.client("lambda"), pipeline.outputs["PlanFunction"]
    told = functions.get_function_configuration(FunctionName=name)["Environment"]["Variables"]
    changed = {**told, "AWS_ENDPOINT_URL_S3": proxy.endpoint()}
    functions.update_function_configuration(FunctionName=name, Environment={"Variables": changed})


def probe_latency(pipeline: DeployedPipeline, proxy: FaultProxy) -> Latency:
    """Return the latency of a request through the proxy."""
    s3 = boto3.client(
        "s3",
        endpoint_url=proxy.endpoint(),
        region_name=pipeline.variables["AWS_DEFAULT_REGION"],
        aws_access_key_id=pipeline.variables["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=pipeline.variables["AWS_SECRET_ACCESS_KEY"],
    )
    seconds = []
    for _ in range(PROBES):
        began = time.perf_counter()
        try:
            s3.head_object(Bucket=pipeline.outputs["DestinationBucket"], Key="nothing")
        except ClientError:
            seconds.append(time.perf_counter() - began)
    seconds.sort()
    middle = statistics.median(seconds)
    return Latency(middle, max(seconds[-2], middle))


def _measure(pipeline: DeployedPipeline, proxy: FaultProxy, case: DirectCase, number: str) -> float:
    """Put an archive; return the seconds of its direct run."""
    key = f"{case.name}-{number}.zip"
    proxy.take_records()
    pipeline.put(key, random_archive(case.members, case.size, stored=True))
    report = pipeline.wait(key)
    assert (report.extracted, report.records is None) == (case.members, False), report
    moments = [one.at for one in proxy.take_records()]  # when they were answered
    return moments[-1] - moments[0] + LATENCY


def _forecast(case: DirectCase, latency: Latency) -> float:
    """Return the forecast seconds of a warm function with these latencies."""
    tuning = Tuning()
    function = one_function(rates.LAMBDA_VCPU_MB, member_seconds=tuning.member_seconds)
    here = replace(function, event_seconds=0.0, cold_start=None, put=latency, get=latency)
    fixture = Fixture(case.name, case.name, case.members, case.size, case.size)
    workload = merge_tasks(make_fixture(fixture, tuning))
    return make_forecast(workload, here, tuning).duration.expected
