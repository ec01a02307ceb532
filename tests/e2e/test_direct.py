"""Direct runs on the embedded AWS with every right checked: one invocation an archive."""

from __future__ import annotations

import json
import random
import time
from typing import TYPE_CHECKING

import pytest

from embedded.deploy import start_aws
from embedded.pipeline import DeployedPipeline
from s3unzip.model import Verdict
from s3unzip.settings import Variable
from tests.e2e.functions import with_variables
from tests.e2e.rights import ARCHIVES, MEMBERS, OF_DIRECT_RUNS, RUNS, Right
from tests.e2e.test_rights import without
from tests.zips import DEFLATE, Entry, build

if TYPE_CHECKING:
    from collections.abc import Iterator

    from embedded.deploy import Assembly

ENTRIES = [Entry(f"d{n}/f.txt", str(n).encode() * 200, DEFLATE) for n in range(30)]


@pytest.fixture(scope="module")
def direct(assembly: Assembly) -> Iterator[DeployedPipeline]:
    """The stack of dev, over TLS with all rights checked."""
    with start_aws(auth=True, wait_scale=0.02) as aws:
        yield DeployedPipeline.create(assembly, aws.environment)


def test_a_small_archive_needs_no_execution(direct: DeployedPipeline) -> None:
    """Its members and its report exist; besides the report one object is left."""
    direct.put("small.zip", build(*ENTRIES))
    report = direct.wait("small.zip")
    assert (report.verdict, report.extracted) == (Verdict.COMPLETED, 30)
    assert direct.members("small/").keys() == {f"small/d{n}/f.txt" for n in range(30)}
    states = direct.client("stepfunctions")
    machine = direct.outputs["StateMachineArn"]
    assert states.list_executions(stateMachineArn=machine)["executions"] == []
    listed = direct.client("s3").list_objects_v2(Bucket=direct.outputs["WorkBucket"])
    assert {one["Key"] for one in listed["Contents"]} == {
        f"runs/{report.run}/report.json",
        f"runs/{report.records}",
    }


@pytest.mark.parametrize("members", [2_600, 6_000])
def test_a_large_one_is_an_execution(direct: DeployedPipeline, members: int) -> None:
    """What is beyond the bounds goes by the state machine, which plans the largest itself."""
    key = f"large-{members}.zip"
    direct.put(key, build(*(Entry(f"f{n}", b"x") for n in range(members))))
    report = direct.wait(key, 170)
    assert (report.verdict, report.extracted, report.records) == (Verdict.COMPLETED, members, None)
    states = direct.client("stepfunctions")
    name = direct.outputs["StateMachineArn"].replace(":stateMachine:", ":execution:")
    told = states.describe_execution(executionArn=f"{name}:{report.run}")["input"]
    assert json.loads(told)["planned"] is (members == 2_600)


def send_event(direct: DeployedPipeline, key: str) -> None:
    """Queue the event of an archive once more."""
    bucket = {"name": direct.outputs["IngestBucket"]}
    event = {
        "detail-type": "Object Created",
        "time": "2026-01-01T00:00:01Z",
        "detail": {"bucket": bucket, "object": {"key": key}},
    }
    url = direct.outputs["QueueUrl"]
    direct.client("sqs").send_message(QueueUrl=url, MessageBody=json.dumps(event))


def was_refused(direct: DeployedPipeline, since: float) -> bool:
    """Say whether a function was refused something since then, or a run was stopped by it."""
    logs = direct.logs(since)
    return "AccessDenied" in logs or "access-denied" in logs


LARGER = random.Random(1).randbytes(300_000)  # than the bytes that the function reads first
SKIPPING = {Variable.OPTIONS.value: json.dumps({"on_conflict": "skip-unchanged"})}
NEEDED = [
    Right("plan", "s3:GetObject", ARCHIVES),
    Right("plan", "s3:PutObject", MEMBERS),
    Right("plan", "s3:PutObject", RUNS),
    Right("plan", "s3:GetObject", RUNS),
    *OF_DIRECT_RUNS,
]


@pytest.mark.parametrize("right", NEEDED, ids=str)
def test_no_right_of_direct_runs_is_too_many(direct: DeployedPipeline, right: Right) -> None:
    """Without any one of them an archive, put again or under another key, meets a refusal.

    The options say to compare members that are there already.
    """
    key, archive = f"right-{NEEDED.index(right)}.zip", build(*ENTRIES, Entry("larger", LARGER))
    direct.put(key, archive)
    assert direct.wait(key).records is not None
    since = time.time()
    with with_variables(direct, "plan", SKIPPING), without(direct, right):
        direct.put(key, archive)
        send_event(direct, key)
        # A message whose invocation fails for another reason comes back after minutes only.
        for again in range(12):
            direct.put(f"again-{again}-{key}", archive)
            deadline = time.monotonic() + 10
            while not (refused := was_refused(direct, since)) and time.monotonic() < deadline:
                time.sleep(0.2)
            if refused:
                break
        assert refused, direct.logs()
    direct.client("sqs").purge_queue(QueueUrl=direct.outputs["QueueUrl"])


def test_duplicates_at_once_are_one_run(direct: DeployedPipeline) -> None:
    """Five events of one archive: each member is written once."""
    s3, bucket = direct.client("s3"), direct.outputs["DestinationBucket"]
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    direct.put("twice.zip", build(*ENTRIES))
    for _ in range(5):
        send_event(direct, "twice.zip")
    assert direct.wait("twice.zip").extracted == 30
    while direct.waiting():
        time.sleep(0.1)
    versions = s3.list_object_versions(Bucket=bucket, Prefix="twice/")["Versions"]
    assert len(versions) == 30
