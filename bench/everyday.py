"""Everyday archives on the embedded AWS: a direct run against a plain Lambda with zipfile.

    uv run python -m bench.everyday

An archive of 5 members is put again and again into the stack of dev, and into a bucket whose rule
and queue lead to a Lambda of twenty lines with `zipfile` and boto3. The seconds are from the PUT of
the archive until what is written last can be read. A second plain Lambda is invoked by the bucket's
notification, without a queue. All share the machine with the embedded AWS, so the figures compare
ways, and do not say what AWS would do. Its poller of queues rests for 50 ms after a look in vain:
each archive is put after a longer pause, when the poller waits for it.
"""

import io
import json
import tempfile
import time
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.measure import median, print_figure
from embedded.deploy import start_aws, synthesize
from embedded.pipeline import DeployedPipeline
from s3unzip.aws.environment import read_config
from s3unzip.model import Location, Pin, Report, Request, Verdict, decode
from s3unzip.run_ids import run_id
from tests.support.zips import DEFLATE, Entry, build

MEMBERS = 5
REPEATS = 11
PAUSE = 0.2  # seconds
PLAIN = """
import io, json, os, zipfile
import boto3

s3 = boto3.client("s3", endpoint_url=os.environ.get("AWS_ENDPOINT_URL"))


def keys(event):
    for record in event["Records"]:
        if "body" in record:
            detail = json.loads(record["body"])["detail"]
            yield detail["bucket"]["name"], detail["object"]["key"]
        else:
            yield record["s3"]["bucket"]["name"], record["s3"]["object"]["key"]


def handler(event, context):
    for bucket, key in keys(event):
        body = s3.get_object(Bucket=bucket, Key=key)["Body"].read()
        with zipfile.ZipFile(io.BytesIO(body)) as archive:
            for name in archive.namelist():
                s3.put_object(Bucket="plain-out", Key=f"{key}/{name}", Body=archive.read(name))
"""


def make_archive(number: int) -> bytes:
    """Return an archive of five JSON documents; each number is another one."""
    documents = (
        json.dumps({"archive": number, "member": member, "values": list(range(200))}).encode()
        for member in range(MEMBERS)
    )
    return build(*(Entry(f"{n}.json", text, DEFLATE) for n, text in enumerate(documents)))


@dataclass(frozen=True, slots=True)
class PlainLambda:
    """Two buckets whose archives a plain Lambda takes: by rule and queue, or by notification."""

    pipeline: DeployedPipeline

    def deploy(self) -> None:
        client = self.pipeline.client
        for bucket in ("plain-queued", "plain-notified", "plain-out"):
            client("s3").create_bucket(Bucket=bucket)
        role = client("iam").create_role(
            RoleName="plain",
            AssumeRolePolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": []}),
        )["Role"]["Arn"]
        self._connect_queue(self._make_function("plain-queued", role))
        self._connect_notification(self._make_function("plain-notified", role))

    def _make_function(self, name: str, role: str) -> str:
        code = io.BytesIO()
        with zipfile.ZipFile(code, "w") as archive:
            archive.writestr("plain.py", PLAIN)
        arn: str = self.pipeline.client("lambda").create_function(
            FunctionName=name,
            Runtime="python3.13",
            Role=role,
            Handler="plain.handler",
            Code={"ZipFile": code.getvalue()},
            Timeout=60,
            MemorySize=1024,
        )["FunctionArn"]
        return arn

    def _connect_queue(self, function: str) -> None:
        client = self.pipeline.client
        url = client("sqs").create_queue(
            QueueName="plain", Attributes={"VisibilityTimeout": "360"}
        )["QueueUrl"]
        told = client("sqs").get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
        queue = told["Attributes"]["QueueArn"]
        client("lambda").create_event_source_mapping(
            EventSourceArn=queue, FunctionName=function, BatchSize=1
        )
        pattern = {
            "source": ["aws.s3"],
            "detail-type": ["Object Created"],
            "detail": {"bucket": {"name": ["plain-queued"]}},
        }
        client("events").put_rule(Name="plain", EventPattern=json.dumps(pattern))
        client("events").put_targets(Rule="plain", Targets=[{"Id": "queue", "Arn": queue}])
        client("s3").put_bucket_notification_configuration(
            Bucket="plain-queued",
            NotificationConfiguration={"EventBridgeConfiguration": {}},
        )

    def _connect_notification(self, function: str) -> None:
        client = self.pipeline.client
        client("lambda").add_permission(
            FunctionName=function,
            StatementId="s3",
            Action="lambda:InvokeFunction",
            Principal="s3.amazonaws.com",
        )
        wanted = {"LambdaFunctionArn": function, "Events": ["s3:ObjectCreated:*"]}
        client("s3").put_bucket_notification_configuration(
            Bucket="plain-notified",
            NotificationConfiguration={"LambdaFunctionConfigurations": [wanted]},
        )

    def time(self, bucket: str, number: int) -> float:
        s3, key = self.pipeline.client("s3"), f"{bucket}-{number}.zip"
        began = time.perf_counter()
        s3.put_object(Bucket=bucket, Key=key, Body=make_archive(number))
        _wait_for(s3, "plain-out", f"{key}/{MEMBERS - 1}.json")
        return time.perf_counter() - began


def _wait_for(s3: Any, bucket: str, key: str) -> None:
    looks = {"Delay": 0.002, "MaxAttempts": 30_000}
    s3.get_waiter("object_exists").wait(Bucket=bucket, Key=key, WaiterConfig=looks)


def time_direct_run(pipeline: DeployedPipeline, number: int) -> tuple[float, Report]:
    """Put an archive; return the seconds until its report is there, and the report."""
    s3, bucket, key = pipeline.client("s3"), pipeline.outputs["IngestBucket"], f"day-{number}.zip"
    told = pipeline.client("lambda").get_function_configuration(
        FunctionName=pipeline.outputs["IntakeFunction"]
    )
    own = read_config(told["Environment"]["Variables"]).environment_defaults
    body = make_archive(number)
    began = time.perf_counter()
    put = s3.put_object(Bucket=bucket, Key=key, Body=body)
    request = Request(Location("s3", bucket, key), own.destination, own.options)
    modified = s3.head_object(Bucket=bucket, Key=key)["LastModified"].timestamp()
    run = run_id(request, Pin(len(body), put["ETag"], put.get("VersionId")), modified)
    _wait_for(s3, pipeline.outputs["WorkBucket"], f"runs/{run}/report.json")
    seconds = time.perf_counter() - began
    report = decode(pipeline.read(f"runs/{run}/report.json") or b"", Report)
    assert (report.verdict, report.extracted) == (Verdict.COMPLETED, MEMBERS), report
    assert pipeline.status(run) is None, "it was no direct run"
    return seconds, report


def measure_left(pipeline: DeployedPipeline, report: Report) -> None:
    """Print what one direct run asked for, and what it left."""
    asked = report.requests
    print_figure("everyday.requests_beyond_puts", asked.reads + asked.writes - MEMBERS, "requests")
    pages = pipeline.client("s3").get_paginator("list_objects_v2")
    left = sum(
        report.run in found["Key"]
        for page in pages.paginate(Bucket=pipeline.outputs["WorkBucket"])
        for found in page.get("Contents", [])
    )
    print_figure("everyday.objects_left", left, "objects")


def _count_invocations(pipeline: DeployedPipeline, run: str) -> int:
    lines = [line for line in pipeline.logs().splitlines() if run in line and line[0] == "{"]
    requests = {json.loads(line).get("function_request_id") for line in lines}
    return len(requests - {None})


def measure(name: str, take: Callable[[int], float]) -> float:
    """Print and return the median of warm archives; the first one is cold."""
    seconds = []
    for number in range(REPEATS + 1):
        time.sleep(PAUSE)
        seconds.append(take(number))
    warm = median(seconds[1:])
    print_figure(f"{name}.s", warm, "s")
    print_figure(f"{name}_cold.s", seconds[0], "s")
    return warm


def main() -> None:
    """Print all figures."""
    with tempfile.TemporaryDirectory(prefix="s3unzip-bench-") as folder:
        assembly = synthesize("dev", Path(folder))
        with start_aws() as embedded:
            pipeline = DeployedPipeline.create(assembly, embedded.environment)
            plain = PlainLambda(pipeline)
            plain.deploy()
            ours = measure(
                "everyday.put_to_done", lambda number: time_direct_run(pipeline, number)[0]
            )
            queued = measure(
                "everyday.plain_lambda", lambda number: plain.time("plain-queued", number)
            )
            measure("everyday.notified_lambda", lambda number: plain.time("plain-notified", number))
            print_figure("everyday.vs_plain_lambda", ours / queued, "x")
            _, report = time_direct_run(pipeline, REPEATS + 1)
            measure_left(pipeline, report)
            print_figure("everyday.invocations", _count_invocations(pipeline, report.run), "calls")


if __name__ == "__main__":
    main()
