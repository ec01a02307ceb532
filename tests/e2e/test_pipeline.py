"""The synthesized template on MiniStack, from an archive put to its report.

Then its faults, and what an operator does about them.
"""

import json
import re
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
from s3unzip import run_ids, settings
from s3unzip.model import OnConflict, Report, Verdict, decode
from s3unzip.operate.doctor import ACCOUNT_CHECKS
from s3unzip.settings import KIB, METRICS, MIB, Variable
from tests.e2e.conftest import (
    await_value,
    find_function,
    members_of,
    with_all_variables,
    with_settings,
    with_variables,
    without_workers,
)
from tests.support.processes import Program
from tests.support.zips import DEFLATE, Entry, build, with_wrong_crc

BAD = with_wrong_crc("bad.txt", b"not what the directory says")
STATE_MACHINE = {Variable.TUNING.value: json.dumps({"max_direct_members": 0})}
EACH_WAY: list[tuple[str, dict[str, str]]] = [("here", {}), ("machine", STATE_MACHINE)]
# Metrics of handovers, of actions after success and of the malware gate.
UNUSED = {"ArchivesWithheld", "DirectHandovers", "SourcesFinished", "SourcesNotFinished"}


def contents(prefix: str, entries: Iterable[Entry]) -> dict[str, bytes]:
    """Return the objects that members become, by key."""
    return {f"{prefix}{entry.raw_name.decode()}": entry.content for entry in entries}


def put_event(pipeline: DeployedPipeline, key: str, sender: str = "aws.s3") -> None:
    """Queue the event of an archive, as the rule or `s3unzip submit` does."""
    event = {
        "detail-type": "Object Created",
        "source": sender,
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "detail": {"bucket": {"name": pipeline.outputs["IngestBucket"]}, "object": {"key": key}},
    }
    send(pipeline, [json.dumps(event)])


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
    tuning = {
        "split_from": 8 * MIB,
        "segment_bytes": 4 * MIB,
        "part_bytes": 5 * MIB,
        "max_few_tasks": 0,
    }
    with with_all_variables(pipeline, {Variable.TUNING.value: json.dumps(tuning)}):
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
    assert (report.verdict, report.members, report.tasks) == (
        Verdict.COMPLETED,
        len(entries),
        len(entries),
    )
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
    logs = pipeline.logs()
    assert (pipeline.runs(), '"run is known"' in logs, "is gone" in logs) == (known, True, True)


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
        units = {metric["Name"]: metric["Unit"] for metric in directive["Metrics"]}
        assert units.items() <= METRICS.items()
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
    members = pipeline.members("local/").items()
    assert {key.removeprefix("local/"): body for key, body in members} == pipeline.members("same/")


# No direct run.
LARGE = build(*(Entry(f"f{n}", b"x") for n in range(settings.Tuning().max_direct_members + 1)))


@pytest.mark.parametrize(
    ("limit", "body"),
    [
        ("0.000001", build(*members_of(50))),
        ("0.0128", LARGE),  # enough for a direct run of this archive, which is too large for one
    ],
)
def test_run_above_the_cost_limit(pipeline: DeployedPipeline, limit: str, body: bytes) -> None:
    """A run whose estimate is above the environment's limit is refused before its first PUT."""
    with with_variables(pipeline, "intake", {Variable.MAX_COST.value: limit}):
        report = pipeline.extract(f"dear-{limit}.zip", body)
    assert (report.verdict, report.reason) == (Verdict.REJECTED, "budget")
    assert pipeline.member_keys(f"dear-{limit}/") == []


NEXT = re.compile(r'"archive not taken".*?"next_seconds": ?([0-9.]+)')


def test_run_that_fails_goes_on_with_a_new_event(pipeline: DeployedPipeline) -> None:
    """Tasks that fail in three rounds end the run FAILED; the archive's event again resumes it."""
    with with_variables(pipeline, "intake", STATE_MACHINE):
        with with_settings(pipeline, "extract", Handler="s3unzip.aws.not_there.handler"):
            report = pipeline.extract("fails.zip", build(*members_of(10)))
        assert (report.verdict, report.missing, report.rounds) == (Verdict.FAILED, 10, 3)
        put_event(pipeline, "fails.zip")
        wait_until_idle(pipeline)  # the next execution has begun
        resumed = await_value(pipeline, lambda: pipeline.report(report.run))
    assert (resumed.verdict, resumed.extracted) == (Verdict.COMPLETED, 10)
    assert pipeline.members("fails/") == contents("fails/", members_of(10))
    listed = pipeline.client("stepfunctions").list_executions(
        stateMachineArn=pipeline.outputs["StateMachineArn"]
    )
    names = {execution["name"] for execution in listed["executions"]}
    assert run_ids.execution_name(f"{report.run}-r2") in names


@pytest.mark.parametrize(("seconds", "said"), [(0, "run has a report"), (60, "archive")])
def test_late_news_of_a_failure_changes_no_report(
    pipeline: DeployedPipeline, seconds: int, said: str
) -> None:
    """What follows the end is repeated only if the execution that failed wrote the report."""
    report = pipeline.extract(f"late-{seconds}.zip", build(*members_of(3)))
    event = {
        "detail": {
            "name": run_ids.execution_name(report.run),
            "status": "FAILED",
            "input": "{}",
            "startDate": report.started * 1_000,
            "stopDate": (report.started + seconds) * 1_000,
        }
    }
    settle = find_function(pipeline, "settle")["FunctionName"]

    def logged() -> set[str]:
        """Tell it once more, for MiniStack may show a line only after the next invocation."""
        answer = pipeline.client("lambda").invoke(FunctionName=settle, Payload=json.dumps(event))
        assert json.loads(answer["Payload"].read()) == {}
        lines = (json.loads(one) for one in pipeline.logs().splitlines() if report.run in one)
        return {one["message"] for one in lines if settle == one.get("function_name")}

    assert (await_value(pipeline, logged), pipeline.find_report(report.run)) == ({said}, report)


def test_replaced_archive(pipeline: DeployedPipeline) -> None:
    """The older run writes its members last; then those of the newest version are written again."""
    older = [Entry(f"f{n}.txt", b"older" * 100, DEFLATE) for n in range(12)]
    newer = [Entry(f"f{n}.txt", b"newer" * 100, DEFLATE) for n in range(6)]
    with without_workers(pipeline, "extract"):
        with with_variables(pipeline, "intake", STATE_MACHINE):
            pipeline.put("replaced.zip", build(*older))
            run = await_value(pipeline, lambda: pipeline.find_run("replaced.zip"))
        pipeline.put("replaced.zip", build(*newer))
        await_value(pipeline, lambda: len(pipeline.member_keys("replaced/")) == len(newer))
    assert await_value(pipeline, lambda: pipeline.report(run)).extracted == 12
    runs = await_value(pipeline, lambda: [name for name in pipeline.runs() if "again" in name])
    again = await_value(pipeline, lambda: pipeline.find_report(runs[0]))
    assert again.options.on_conflict is OnConflict.SKIP_UNCHANGED
    assert (again.verdict, again.extracted + again.unchanged) == (Verdict.COMPLETED, 6)
    assert pipeline.members("replaced/") == contents("replaced/", (*older, *newer))


def test_a_message_is_retried_within_two_minutes(pipeline: DeployedPipeline) -> None:
    """The queue hides a message for minutes; after a fault it comes back much sooner."""
    with with_variables(
        pipeline, "intake", {settings.Variable.WORK_BUCKET.value: "no-such-bucket"}, idle=False
    ):
        pipeline.put("fault.zip", build(Entry("a", b"a" * 500)))
        await_value(pipeline, lambda: "no-such-bucket" in pipeline.logs())
    assert pipeline.wait("fault.zip").verdict is Verdict.COMPLETED
    seconds = [float(text) for text in NEXT.findall(pipeline.logs())]
    assert 0 < max(seconds) < 120


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("no event", "JSONDecodeError"),
        (
            '{"Type":"Notification","TopicArn":"arn:aws:sns:x","Message":"{\\"AlarmName\\":1}"}',
            "its fields are ['AlarmName']",
        ),
    ],
)
def test_what_is_no_event_is_soon_a_dead_letter(
    pipeline: DeployedPipeline, body: str, reason: str
) -> None:
    """The queue's alarm notifies a person, and the log says why; a message of SNS is opened."""
    sqs = pipeline.client("sqs")
    sqs.send_message(QueueUrl=pipeline.outputs["QueueUrl"], MessageBody=body)
    await_value(pipeline, lambda: pipeline.waiting("DeadLettersUrl") == 1)
    letters = pipeline.outputs["DeadLettersUrl"]
    attributes = sqs.get_queue_attributes(QueueUrl=letters, AttributeNames=["QueueArn"])
    assert attributes["Attributes"] == {"QueueArn": pipeline.outputs["DeadLettersArn"]}
    logs = pipeline.logs()
    assert ("the message is not an S3 event" in logs, reason in logs) == (True, True)
    sqs.purge_queue(QueueUrl=letters)


def _versions(pipeline: DeployedPipeline) -> list[str]:
    s3 = pipeline.client("s3")
    listed = [
        s3.list_object_versions(Bucket=pipeline.outputs[name])
        for name in ("IngestBucket", "DestinationBucket", "WorkBucket")
    ]
    return [
        one["Key"]
        for answer in listed
        for kind in ("Versions", "DeleteMarkers")
        for one in answer.get(kind, ())
    ]


def test_a_healthy_environment(pipeline: DeployedPipeline, operator: Program) -> None:
    """Every check of doctor answers, the canary is extracted, and nothing of it is left."""
    before = _versions(pipeline)
    ended = operator.run("doctor", "--env", "dev", "--json").ends(0)
    checks = json.loads(ended.out)["checks"]
    by_name = {one["name"]: one for one in checks}
    assert list(by_name) == [*ACCOUNT_CHECKS, "canary", "canary removal"]
    # dev has no alarms.email: nobody is told, and doctor says so.
    quiet = {name for name, one in by_name.items() if one["status"] == "warning"}
    assert quiet == {"alarms", "subscriptions"}, checks
    assert "5 of 5 members" in by_name["canary"]["message"]
    assert _versions(pipeline) == before


def test_a_run_is_listed_and_shown(pipeline: DeployedPipeline, operator: Program) -> None:
    """By the beginning of its id, or as the latest one; its page is fetched; also if refused."""
    run = pipeline.extract("shown.zip", build(*members_of(20))).run
    operator.run("runs", "--env", "dev", "--limit", "1").prints(run, "COMPLETED")
    assert (
        decode(operator.run("show", run[:-4], "--env", "dev", "--json").out, Report).extracted == 20
    )
    assert "<title>" in Path(
        operator.run("show", "latest", "--env", "dev", "--html").out.strip()
    ).read_text(encoding="utf-8")
    # A run without an execution. Runs of the same second are in the order of their names.
    refused = pipeline.extract("wrong.zip", b"no zip").run
    operator.run("watch", refused, "--env", "dev").ends(Verdict.REJECTED.exit_code, "REJECTED")
    operator.run("runs", "--env", "dev", "--limit", "1").prints(refused, "REJECTED")
    operator.run("show", "latest", "--env", "dev").ends(Verdict.REJECTED.exit_code)


def test_failures_are_retried(pipeline: DeployedPipeline, operator: Program) -> None:
    """A retry is a separate execution for the failed members only; its records may expire."""
    archive = bytearray(build(*members_of(40), Entry("bad", b"x" * 500)))
    archive[archive.index(b"x" * 500)] ^= 1
    first = pipeline.extract("retried.zip", bytes(archive))
    assert (first.verdict, first.failed) == (Verdict.COMPLETED_WITH_ERRORS, 1)
    shown = operator.run("show", first.run, "--env", "dev", "--failures", "--json")
    assert json.loads(shown.out)["outcome"]["key"] == "retried/bad"
    retried = operator.run("resume", first.run, "--failed", "--env", "dev")
    assert retried.out.startswith("resumed: "), retried.err
    watched = operator.run("watch", first.run, "--env", "dev", "--json").ends(
        Verdict.COMPLETED_WITH_ERRORS.exit_code, "41 members: 40 extracted"
    )
    again = decode(watched.out.splitlines()[-1], Report)
    assert (again.extracted, again.failed, again.failures[0].key) == (40, 1, "retried/bad")
    assert again.finished > first.finished
    s3, bucket = pipeline.client("s3"), pipeline.outputs["WorkBucket"]
    for record in s3.list_objects_v2(Bucket=bucket, Prefix=f"runs/{first.run}/")["Contents"]:
        s3.delete_object(Bucket=bucket, Key=record["Key"])
    operator.run("watch", first.run, "--env", "dev").ends(6, "its records are gone")


def test_a_local_run_writes_with_a_key(pipeline: DeployedPipeline, operator: Program) -> None:
    """--kms-key goes with every object, small or in parts."""
    pipeline.put("by hand.zip", build(*members_of(5), Entry("large", b"x" * (9 << 20), method=8)))
    bucket = pipeline.outputs["DestinationBucket"]
    source = f"s3://{pipeline.outputs['IngestBucket']}/by hand.zip"
    key = "arn:aws:kms:us-east-1:000000000000:key/k"
    operator.run("run", source, f"s3://{bucket}/here", "--kms-key", key).ends(0)
    s3 = pipeline.client("s3")
    for name in ("folder 0/größe-0000.json", "large"):
        found = s3.head_object(Bucket=bucket, Key=f"here/by hand/{name}")
        assert (found["ServerSideEncryption"], found["SSEKMSKeyId"]) == ("aws:kms", key)


def test_a_plan_for_an_environment(pipeline: DeployedPipeline, operator: Program) -> None:
    """Its forecast is made with the workers, memory and options that are deployed."""
    pipeline.put("planned.data", LARGE)
    source = f"s3://{pipeline.outputs['IngestBucket']}/planned.data"
    ended = operator.run("plan", source, "--env", "dev", "--json").ends(0)
    deployed = json.loads(ended.out)
    usual = json.loads(operator.run("plan", source, "--on", "aws", "--json").out)
    assert deployed["platform"] == usual["platform"] == "aws"
    assert deployed["cost"] != usual["cost"]  # 2,048 MB against 1,769
    refused = operator.run("plan", source, "--env", "dev", "--on", "local").ends(2)
    assert refused.err == "s3unzip: --env dev is on aws, not on local\n"
