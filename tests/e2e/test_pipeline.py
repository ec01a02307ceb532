"""The synthesized template on MiniStack, from an archive put to its report."""

import json
import time
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import pytest

from bench.archives import (
    ArchiveFile,
    deflate_whole,
    mixed_files,
    noise,
    repeat_deflated,
    repeat_stored,
)
from embedded.pipeline import DeployedPipeline
from s3unzip.model import Report, Verdict, decode
from s3unzip.settings import KIB, METRICS, MIB, Variable
from tests.e2e.functions import (
    await_value,
    members_of,
    with_all_variables,
    with_variables,
)
from tests.support.processes import Program
from tests.support.zips import Entry, build

BAD = Entry("bad.txt", b"not what the directory says", central={"crc32": 1}, local={"crc32": 1})
STATE_MACHINE = {Variable.TUNING.value: json.dumps({"max_direct_members": 0})}
EACH_WAY: list[tuple[str, dict[str, str]]] = [("here", {}), ("machine", STATE_MACHINE)]
# Metrics of handovers, of actions after success and of the malware gate.
UNUSED = {"ArchivesWithheld", "DirectHandovers", "SourcesFinished", "SourcesNotFinished"}


def contents(prefix: str, entries: Iterable[Entry]) -> dict[str, bytes]:
    """Return the objects that members become, by key."""
    return {f"{prefix}{entry.raw_name.decode()}": entry.content for entry in entries}


def put_event(
    pipeline: DeployedPipeline, key: str, times: int = 1, put_at: str = "2026-01-01T00:00:00Z"
) -> None:
    """Queue EventBridge's event of an archive, as often as wanted, as the rule would."""
    body = json.dumps(
        {
            "source": "aws.s3",
            "detail-type": "Object Created",
            "time": put_at,
            "detail": {
                "bucket": {"name": pipeline.outputs["IngestBucket"]},
                "object": {"key": key, "size": 1, "etag": "stale", "sequencer": "00"},
            },
        }
    )
    send(pipeline, [body] * times)


def send(pipeline: DeployedPipeline, bodies: list[str]) -> None:
    """Send messages to the pipeline's queue at once."""
    pipeline.client("sqs").send_message_batch(
        QueueUrl=pipeline.outputs["QueueUrl"],
        Entries=[{"Id": str(n), "MessageBody": body} for n, body in enumerate(bodies)],
    )


def wait_until_idle(pipeline: DeployedPipeline) -> None:
    """Wait until the queue is empty; there is no dead letter."""
    await_value(pipeline, lambda: pipeline.waiting() == 0)
    assert pipeline.waiting("DeadLettersUrl") == 0


def executions(pipeline: DeployedPipeline) -> list[str]:
    """Return the names of all executions."""
    listed = pipeline.client("stepfunctions").list_executions(
        stateMachineArn=pipeline.outputs["StateMachineArn"]
    )
    return [execution["name"] for execution in listed["executions"]]


def test_huge_members_go_through_the_state_machine(
    pipeline: DeployedPipeline, tmp_path: Path
) -> None:
    """Of an archive with ZIP64 in every field: scanned, extracted in slices, copied, settled.

    Each round is a distributed Map; payloads stay small.
    """
    path = tmp_path / "huge.zip"
    files = mixed_files(8 * MIB)
    pairs = [files[at : at + 256 * KIB] + noise(256 * KIB, at) for at in range(0, 8 * MIB, MIB)]
    mixed = [b"".join(pairs)]
    large = {
        "deflated.bin": repeat_deflated(mixed, 62_000_000),
        "stored.bin": repeat_stored(mixed, 21_000_000),
    }
    small = {f"small/{n:05d}": deflate_whole(b"%d" % n * 200) for n in range(100)}
    with ArchiveFile(path) as archive:
        for name, content in (large | small).items():
            archive.add(name, content)
    sizes = {"split_from": 8 * MIB, "segment_bytes": 4 * MIB, "part_bytes": 5 * MIB}
    tuning = json.dumps({**sizes, "max_few_tasks": 0})
    with with_all_variables(pipeline, {Variable.TUNING.value: tuning}):
        report = pipeline.extract(path.name, path.read_bytes())
    plan = pipeline.plan(report.run)
    assert plan is not None
    assert (plan.kinds, report.rounds) == ({"scan": 1, "copy": 1, "batch": 100}, 2)
    assert (report.verdict, report.extracted) == (Verdict.COMPLETED, 102), report
    states, machine = pipeline.client("stepfunctions"), pipeline.outputs["StateMachineArn"]
    arn = f"{machine.replace(':stateMachine:', ':execution:')}:{report.run.replace('/', '-')}"
    assert len(states.list_map_runs(executionArn=arn)["mapRuns"]) == report.rounds
    assert len(states.describe_execution(executionArn=arn)["input"]) < 4 * 1024
    s3, bucket = pipeline.client("s3"), pipeline.outputs["DestinationBucket"]
    for name, content in large.items():
        body = s3.get_object(Bucket=bucket, Key=f"huge/{name}")["Body"].read()
        assert (len(body), zlib.crc32(body)) == (content.size, content.crc32), name
    assert not s3.list_multipart_uploads(Bucket=bucket).get("Uploads")


@pytest.mark.parametrize(
    ("key", "entries"),
    [
        pytest.param("empty.zip", [], id="no members"),
        pytest.param(
            "in coming/año +100% & so/日本 größe 1.zip",
            [Entry("a b/ü.txt", b"text")],
            id="a key with any characters",
        ),
    ],
)
def test_unusual_archives(pipeline: DeployedPipeline, key: str, entries: list[Entry]) -> None:
    """An archive without members is complete at once, and any key arrives unchanged."""
    report = pipeline.extract(key, build(*entries))
    counts = (report.verdict, report.members, report.tasks)
    assert counts == (Verdict.COMPLETED, len(entries), len(entries))
    folder = f"{key.rpartition('/')[2].removesuffix('.zip')}/"
    assert pipeline.members(folder) == contents(folder, entries)


def test_notification_of_s3_itself(pipeline: DeployedPipeline) -> None:
    """S3's own notification is understood too, its key URL-encoded.

    Its test event and an event whose object is gone start nothing.
    """
    key = "other way/a + b.zip"
    pipeline.extract(key, build(Entry("a.txt", b"text")))
    notification = {
        "Records": [
            {
                "eventName": "ObjectCreated:Put",
                "eventTime": time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime()),
                "s3": {
                    "bucket": {"name": pipeline.outputs["IngestBucket"]},
                    "object": {"key": quote_plus(key, safe="/")},
                },
            }
        ]
    }
    known = pipeline.runs()
    send(pipeline, [json.dumps(notification), json.dumps({"Event": "s3:TestEvent"})])
    put_event(pipeline, "never/was.zip")
    wait_until_idle(pipeline)
    missing = [text for text in ('"run is known"', "is gone") if text not in pipeline.logs()]
    assert (pipeline.runs(), missing) == (known, [])


def test_archives_and_tasks_are_measured(pipeline: DeployedPipeline) -> None:
    """Each archive and each task is measured, by service and environment alone."""
    with with_variables(pipeline, "intake", STATE_MACHINE):
        run = pipeline.extract("measured.zip", build(*members_of(12))).run

    def lines() -> list[dict[str, Any]]:
        return [line for line in pipeline.metrics() if line.get("run") == run]

    def names() -> set[str]:
        return {name for line in lines() for name in line if name[0].isupper()}

    await_value(pipeline, lambda: names() == METRICS.keys() - UNUSED)
    for line in lines():
        (directive,) = line["_aws"]["CloudWatchMetrics"]
        assert (directive["Namespace"], line["environment"], line["service"]) == (
            "s3unzip",
            "dev",
            "s3unzip",
        )
        assert {
            metric["Name"]: metric["Unit"] for metric in directive["Metrics"]
        }.items() <= METRICS.items()
        assert sorted(directive["Dimensions"][0]) == ["environment", "service"]


def test_local_run_gives_the_same_report(pipeline: DeployedPipeline, operator: Program) -> None:
    """`s3unzip run` and the deployed pipeline say the same of the same archive."""
    deployed = pipeline.extract("same.zip", build(*members_of(40), BAD, Entry("folder/")))
    done = operator.start(
        *("run", "--json", "--quiet", f"s3://{pipeline.outputs['IngestBucket']}/same.zip"),
        f"s3://{pipeline.outputs['DestinationBucket']}/local",
    ).ends(deployed.verdict.exit_code)
    local = decode(done.out, Report)
    same = (
        *("verdict", "source", "pin", "members", "directories", "excluded", "extracted"),
        *("unchanged", "failed", "missing", "reasons", "warnings", "bytes_out"),
    )
    assert {n: getattr(local, n) for n in same} == {n: getattr(deployed, n) for n in same}
    assert [
        (f.key.removeprefix("local/"), f.reason, f.message, f.offset) for f in local.failures
    ] == [(f.key, f.reason, f.message, f.offset) for f in deployed.failures]
    assert {
        key.removeprefix("local/"): body for key, body in pipeline.members("local/").items()
    } == pipeline.members("same/")


def test_run_above_the_cost_limit(pipeline: DeployedPipeline) -> None:
    """A run whose estimate is above the environment's limit is refused before its first PUT."""
    with with_variables(pipeline, "intake", {Variable.MAX_COST.value: "0.000001"}):
        report = pipeline.extract("dear.zip", build(*members_of(50)))
    assert (report.verdict, report.reason) == (Verdict.REJECTED, "budget")
    assert pipeline.member_keys("dear/") == []
