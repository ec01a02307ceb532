"""The synthesized template on MiniStack, from an archive put to its report."""

from __future__ import annotations

import json
import os
import time
import zlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import quote_plus

import pytest

from s3unzip.metric_names import METRICS
from s3unzip.model import Report, Run, Verdict, decode
from s3unzip.settings import MIB, Variable
from tests.e2e.executions import labels_of_maps
from tests.e2e.functions import with_handler, with_variables, without_workers
from tests.e2e.ledger import await_that
from tests.functional.large.huge import check, write_archive
from tests.patience import HANG_SECONDS, looks
from tests.processes import run_command
from tests.split_zips import build_split
from tests.zips import Entry, build

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from embedded.deploy import Assembly
    from embedded.pipeline import DeployedPipeline

# These only end a test that hangs.
# Metrics of direct runs, of actions after success, and of runs that wait.
UNUSED = {
    "DirectHandovers",
    "SourcesFinished",
    "SourcesNotFinished",
    "RunsWaiting",
    "WaitingAge",
}


@pytest.fixture(scope="module")
def assembly(orchestrated: Assembly) -> Assembly:
    """The stack without direct runs: the tests look at executions."""
    return orchestrated


@pytest.fixture(scope="module")
def announced(pipeline: DeployedPipeline) -> Callable[[str], dict[str, Any]]:
    """A rule and a queue of a user that wants to know how runs ended."""
    sqs, events = pipeline.client("sqs"), pipeline.client("events")
    queue = sqs.create_queue(QueueName="announced")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])
    events.put_rule(Name="announced", EventPattern=json.dumps({"source": ["s3unzip"]}))
    target = {"Id": "queue", "Arn": arn["Attributes"]["QueueArn"]}
    events.put_targets(Rule="announced", Targets=[target])
    seen: dict[str, dict[str, Any]] = {}

    def wait_for(run: str) -> dict[str, Any]:
        deadline = time.monotonic() + HANG_SECONDS
        while run not in seen and time.monotonic() < deadline:
            answer = sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=10, WaitTimeSeconds=1)
            for message in answer.get("Messages", []):
                event = json.loads(message["Body"])
                seen[event["detail"]["run"]] = event
        return seen[run]

    return wait_for


def members_of(count: int) -> list[Entry]:
    """Return so many small members in folders."""
    return [
        Entry(f"folder {n % 7}/größe-{n:04}.json", json.dumps({"n": n}).encode() * 30)
        for n in range(count)
    ]


def name_of(entry: Entry) -> str:
    """Return a member's name as text."""
    return entry.raw_name.decode()


def put_event(pipeline: DeployedPipeline, key: str, times: int = 1) -> None:
    """Queue EventBridge's event of an archive, as often as wanted, as the rule would."""
    body = json.dumps(
        {
            "source": "aws.s3",
            "detail-type": "Object Created",
            "time": "2026-01-01T00:00:00Z",
            "detail": {
                "bucket": {"name": pipeline.outputs["IngestBucket"]},
                "object": {"key": key, "size": 1, "etag": "stale", "sequencer": "00"},
            },
        }
    )
    send(pipeline, [body] * times)


def send(pipeline: DeployedPipeline, bodies: list[str]) -> None:
    """Send messages to the pipeline's queue at once."""
    entries = [{"Id": str(n), "MessageBody": body} for n, body in enumerate(bodies)]
    pipeline.client("sqs").send_message_batch(
        QueueUrl=pipeline.outputs["QueueUrl"], Entries=entries
    )


def wait_until_idle(pipeline: DeployedPipeline, seconds: float = HANG_SECONDS) -> None:
    """Wait until the queue is empty and stays so."""
    deadline = time.monotonic() + seconds
    while pipeline.waiting() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert pipeline.waiting() == 0, pipeline.logs()
    assert pipeline.waiting("DeadLettersUrl") == 0


def executions(pipeline: DeployedPipeline) -> list[str]:
    """Return the names of all executions."""
    machine = pipeline.outputs["StateMachineArn"]
    found = pipeline.client("stepfunctions").list_executions(stateMachineArn=machine)
    return [execution["name"] for execution in found["executions"]]


def test_normal_archive(
    pipeline: DeployedPipeline, announced: Callable[[str], dict[str, Any]]
) -> None:
    """An archive comes out as verified objects, a report and an event."""
    entries = members_of(80)
    pipeline.put("incoming/normal.zip", build(*entries))
    report = pipeline.wait("incoming/normal.zip")
    assert (report.verdict, report.extracted, report.failed) == (Verdict.COMPLETED, 80, 0)
    assert pipeline.members("normal/") == {f"normal/{name_of(e)}": e.content for e in entries}
    s3, bucket = pipeline.client("s3"), pipeline.outputs["DestinationBucket"]
    head = s3.head_object(Bucket=bucket, Key=f"normal/{name_of(entries[3])}")
    assert head["Metadata"]["zip-crc32"] == f"{zlib.crc32(entries[3].content):08x}"
    assert head["ContentType"] == "application/json"
    event = announced(report.run)
    assert event["detail-type"] == "Archive Extracted"
    assert event["detail"]["extracted"] == 80
    assert event["detail"]["report"].endswith(f"/runs/{report.run}/report.json")
    wait_until_idle(pipeline)


def test_rejected_archive(
    pipeline: DeployedPipeline, announced: Callable[[str], dict[str, Any]]
) -> None:
    """A file that is no archive is reported and announced, starts nothing and waits nowhere."""
    before = executions(pipeline)
    pipeline.put("rejected.zip", b"this is no archive")
    report = pipeline.wait("rejected.zip")
    assert report.verdict is Verdict.REJECTED
    assert announced(report.run)["detail-type"] == "Archive Rejected"
    assert announced(report.run)["detail"]["reason"] == report.reason
    assert pipeline.member_keys("rejected/") == []
    assert executions(pipeline) == before
    wait_until_idle(pipeline)


def test_split_archive_whose_parts_come_late(pipeline: DeployedPipeline) -> None:
    """Without its parts the last one is refused; put once more after them, it is extracted."""
    entries = members_of(12)
    *parts, last = build_split(*entries, sizes=[1_500, 1_500])
    assert len(parts) == 2
    pipeline.put("set/photos.zip", last)
    refused = pipeline.wait("set/photos.zip")
    assert (refused.verdict, refused.reason) == (Verdict.REJECTED, "part-missing")
    assert "photos.z01" in str(refused.message)
    before = executions(pipeline)
    for number, part in enumerate(parts, 1):
        pipeline.put(f"set/photos.z{number:02}", part)
    wait_until_idle(pipeline)
    assert executions(pipeline) == before
    pipeline.put("set/photos.zip", last)
    deadline = time.monotonic() + HANG_SECONDS
    while len(pipeline.member_keys("photos/")) < len(entries) and time.monotonic() < deadline:
        time.sleep(0.1)
    report = pipeline.wait("set/photos.zip")
    assert (report.verdict, report.extracted) == (Verdict.COMPLETED, len(entries)), pipeline.logs()
    assert pipeline.members("photos/") == {f"photos/{name_of(e)}": e.content for e in entries}
    wait_until_idle(pipeline)


def test_poison_member(
    pipeline: DeployedPipeline, announced: Callable[[str], dict[str, Any]]
) -> None:
    """One member with a wrong checksum fails alone; the others are extracted."""
    good = members_of(20)
    bad = Entry("bad.txt", b"not what the directory says", central={"crc32": 1}, local={"crc32": 1})
    pipeline.put("poison.zip", build(*good[:10], bad, *good[10:]))
    report = pipeline.wait("poison.zip")
    assert report.verdict is Verdict.COMPLETED_WITH_ERRORS
    assert (report.extracted, report.failed) == (20, 1)
    assert [failure.key for failure in report.failures] == ["poison/bad.txt"]
    assert set(pipeline.member_keys("poison/")) == {f"poison/{name_of(e)}" for e in good}
    assert announced(report.run)["detail-type"] == "Archive Extracted"


@pytest.mark.parametrize("times", [2, 5])
def test_duplicate_events(pipeline: DeployedPipeline, times: int) -> None:
    """Duplicate concurrent events give one run."""
    key = f"twice-{times}.zip"
    before = set(executions(pipeline))
    pipeline.put(key, build(*members_of(30)))
    put_event(pipeline, key, times - 1)
    report = pipeline.wait(key)
    wait_until_idle(pipeline)
    assert set(executions(pipeline)) - before == {report.run}
    assert report.verdict is Verdict.COMPLETED
    assert len(pipeline.member_keys(f"twice-{times}/")) == 30


def test_event_of_a_deleted_object(pipeline: DeployedPipeline) -> None:
    """An event whose object is gone is consumed, and starts nothing."""
    before = executions(pipeline)
    put_event(pipeline, "never/was.zip")
    wait_until_idle(pipeline)
    assert executions(pipeline) == before
    assert "archive is gone" in pipeline.logs()


def test_overwritten_archive_in_both_orders(pipeline: DeployedPipeline) -> None:
    """Late events of an older version do not bring the older version back."""
    pipeline.put("newer.zip", build(Entry("a.txt", b"old")))
    pipeline.wait("newer.zip")
    pipeline.put("newer.zip", build(Entry("a.txt", b"new")))
    deadline = time.monotonic() + HANG_SECONDS
    while pipeline.members("newer/").get("newer/a.txt") != b"new" and time.monotonic() < deadline:
        time.sleep(0.1)
    wait_until_idle(pipeline)
    known = set(executions(pipeline))
    put_event(pipeline, "newer.zip")
    wait_until_idle(pipeline)
    assert set(executions(pipeline)) == known
    assert pipeline.members("newer/") == {"newer/a.txt": b"new"}


@pytest.mark.parametrize("key", ["in coming/año +100% & so/größe 1.zip", "日本/書庫.zip"])
def test_key_with_spaces_and_unicode(pipeline: DeployedPipeline, key: str) -> None:
    """A key with any characters arrives unchanged."""
    pipeline.put(key, build(Entry("a b/ü.txt", b"text")))
    report = pipeline.wait(key)
    assert report.verdict is Verdict.COMPLETED
    stem = key.rsplit("/", 1)[-1].removesuffix(".zip")
    assert pipeline.members(f"{stem}/") == {f"{stem}/a b/ü.txt": b"text"}


def test_notification_of_s3_itself(pipeline: DeployedPipeline) -> None:
    """S3's own notification is understood too, its key URL-encoded; its test event is ignored."""
    key = "other way/a + b.zip"
    pipeline.put(key, build(Entry("a.txt", b"text")))
    first = pipeline.wait(key)
    notification = {
        "Records": [
            {
                "eventTime": "2026-01-01T00:00:00.000Z",
                "s3": {
                    "bucket": {"name": pipeline.outputs["IngestBucket"]},
                    "object": {"key": quote_plus(key, safe="/")},
                },
            }
        ]
    }
    known = set(executions(pipeline))
    send(pipeline, [json.dumps(notification), json.dumps({"Event": "s3:TestEvent"})])
    wait_until_idle(pipeline)
    assert set(executions(pipeline)) == known
    assert first.run in known
    assert pipeline.logs().count('"run is known"') >= 1


def test_empty_archive(pipeline: DeployedPipeline) -> None:
    """An archive without members is complete at once."""
    pipeline.put("empty.zip", build())
    report = pipeline.wait("empty.zip")
    assert (report.verdict, report.members, report.tasks) == (Verdict.COMPLETED, 0, 0)


def test_run_without_workers(pipeline: DeployedPipeline) -> None:
    """A run whose task finds no worker in a whole round continues until it is complete."""
    with without_workers(pipeline, "extract"):
        pipeline.put("again.zip", build(*members_of(10)))
        run = wait_for_rounds(pipeline, "again.zip")
        assert pipeline.report(run) is None
    report = pipeline.wait("again.zip")
    assert (report.verdict, report.extracted) == (Verdict.COMPLETED, 10), pipeline.logs()


def wait_for_rounds(pipeline: DeployedPipeline, key: str) -> Run:
    """Return a run whose first round has ended, and whose report says that it continues."""
    for _ in looks():
        run = pipeline.find_run(key)
        report = None if run is None else pipeline.read(f"runs/{run.id}/report.json")
        if run is not None and report is not None and decode(report, Report).continues:
            return run
    raise AssertionError(f"{key} has no tasks left\n{pipeline.logs()}")


def test_run_that_fails(
    pipeline: DeployedPipeline, announced: Callable[[str], dict[str, Any]]
) -> None:
    """A run whose tasks cannot be done ends FAILED, in its report and its event, to be redriven."""
    with with_handler(pipeline, "extract", "s3unzip.handlers.not_there.handler"):
        pipeline.put("fails.zip", build(*members_of(10)))
        report = pipeline.wait("fails.zip")
    assert (report.verdict, report.missing) == (Verdict.FAILED, 10)
    run = pipeline.find_run("fails.zip")
    assert run is not None
    assert pipeline.status(run) == "FAILED"
    assert announced(report.run)["detail-type"] == "Archive Failed"
    assert pipeline.read(f"runs/{run.id}/redo.jsonl") is not None


def measured(pipeline: DeployedPipeline, key: str) -> list[dict[str, Any]]:
    """Return the metrics of an archive, as the functions logged them."""
    return [line for line in pipeline.metrics() if key in line.get("archive", "")]


def names_of(lines: list[dict[str, Any]]) -> set[str]:
    """Return the names of metrics."""
    return {name for line in lines for name in line if name[0].isupper()}


def test_metrics(pipeline: DeployedPipeline) -> None:
    """Each archive and each task is measured, by service and environment alone."""
    pipeline.put("measured.zip", build(*members_of(12)))
    pipeline.wait("measured.zip")
    wanted = METRICS.keys() - UNUSED - {"ScanDuration", "LinkDuration"}  # nothing was split
    # The plan function may still be at work when the execution that it started has ended.
    await_that(pipeline, lambda: names_of(measured(pipeline, "measured.zip")) == wanted)
    for line in measured(pipeline, "measured.zip"):
        (directive,) = line["_aws"]["CloudWatchMetrics"]
        assert directive["Namespace"] == "s3unzip"
        for metric in directive["Metrics"]:
            assert metric["Unit"] == METRICS[metric["Name"]]
        assert sorted(directive["Dimensions"][0]) == ["environment", "service"]
        assert (line["environment"], line["service"]) == ("dev", "s3unzip")


def test_state_machine_payload_is_small(pipeline: DeployedPipeline) -> None:
    """What the state machine is given does not grow with the archive."""
    states, machine = pipeline.client("stepfunctions"), pipeline.outputs["StateMachineArn"]
    sizes = []
    for count in (10, 300):
        key = f"payload-{count}.zip"
        pipeline.put(key, build(*members_of(count)))
        run = pipeline.wait(key).run
        arn = f"{machine.replace(':stateMachine:', ':execution:')}:{run}"
        sizes.append(len(states.describe_execution(executionArn=arn)["input"]))
    assert max(sizes) < 4 * 1024
    assert abs(sizes[0] - sizes[1]) < 256  # not a byte a member


def test_reports_are_of_their_type(pipeline: DeployedPipeline) -> None:
    """The report in the work bucket is the one that the model defines."""
    pipeline.put("typed.zip", build(Entry("a", b"1")))
    report = pipeline.wait("typed.zip")
    assert isinstance(report, Report)
    assert report.event_time is not None
    assert report.event_time <= report.started <= report.finished


def test_local_run_gives_the_same_report(pipeline: DeployedPipeline, tmp_path: Path) -> None:
    """`s3unzip run` and the deployed pipeline say the same of the same archive."""
    wrong = {"crc32": 1}
    bad = Entry("bad.txt", b"not what the directory says", central=wrong, local=wrong)
    pipeline.put("same.zip", build(*members_of(40), bad, Entry("folder/")))
    deployed = pipeline.wait("same.zip")
    outputs = pipeline.outputs
    source = f"s3://{outputs['IngestBucket']}/same.zip"
    destination = f"s3://{outputs['DestinationBucket']}/local"
    variables = {**os.environ, **pipeline.variables, "S3UNZIP_HOME": str(tmp_path)}
    words = ("run", "--json", "--quiet", source, destination)
    done = run_command(words, tmp_path, variables)
    assert done.returncode == deployed.verdict.exit_code, done.stderr
    local = decode(done.stdout, Report)
    for name in (
        *("verdict", "source", "pin", "members", "directories", "excluded", "extracted"),
        *("unchanged", "failed", "missing", "reasons", "warnings", "bytes_out"),
    ):
        assert getattr(local, name) == getattr(deployed, name), name
    said = [(f.key.removeprefix("local/"), f.reason, f.message, f.offset) for f in local.failures]
    assert said == [(f.key, f.reason, f.message, f.offset) for f in deployed.failures]
    ours = {key.removeprefix("local/"): body for key, body in pipeline.members("local/").items()}
    assert ours == pipeline.members("same/")


def test_run_above_the_cost_limit(
    pipeline: DeployedPipeline, announced: Callable[[str], dict[str, Any]]
) -> None:
    """A run whose forecast is above the environment's limit is refused before its first PUT."""
    with with_variables(pipeline, "plan", {Variable.MAX_COST.value: "0.000001"}):
        pipeline.put("dear.zip", build(*members_of(50)))
        report = pipeline.wait("dear.zip")
        event = announced(report.run)  # else the change back could end the function before it
    assert (report.verdict, report.reason) == (Verdict.REJECTED, "budget")
    assert event["detail-type"] == "Archive Rejected"
    assert pipeline.member_keys("dear/") == []


@pytest.mark.parametrize("inline", [80, 0])
def test_huge_members_go_through_the_state_machine(
    pipeline: DeployedPipeline, tmp_path: Path, inline: int
) -> None:
    """The archive of 6 GB at a hundredth: scanned, linked, extracted in slices, copied, settled.

    By inline Maps, and by Distributed Maps where these are switched off: then slices wait beside
    the scans. On a slow machine they may wait in vain, and another Map extracts them.
    """
    path, key = tmp_path / "huge.zip", f"inline-{inline}/huge.zip"
    large = write_archive(path, 0.01)
    tuning = {"split_from": 8 * MIB, "segment_bytes": 4 * MIB, "part_bytes": 5 * MIB}
    with tuned(pipeline, tuning | {"max_direct_members": 0, "max_inline_tasks": inline}):
        pipeline.put(key, path.read_bytes())
        report = pipeline.wait(key)
    run = pipeline.find_run(key)
    assert run is not None
    labels = labels_of_maps(pipeline, run.id)
    assert labels - {"Rescan", "Extractslices"} == (
        set() if inline else {"Extract", "Scanbeside", "Sliceswhenlinked"}
    )
    summary = pipeline.summary(run)
    assert summary is not None
    assert summary.kinds == {"segment": 1, "copy": 1, "batch": 100}
    assert summary.scans > 5
    check(pipeline.client("s3"), pipeline.outputs["DestinationBucket"], report, large, 100)
    wanted = METRICS.keys() - UNUSED
    await_that(pipeline, lambda: names_of(measured(pipeline, key)) == wanted)


@contextmanager
def tuned(pipeline: DeployedPipeline, tuning: dict[str, int]) -> Iterator[None]:
    """Give all functions other tuning for a while."""
    functions = pipeline.client("lambda")
    before = {
        one["FunctionName"]: dict(one["Environment"]["Variables"])
        for one in functions.list_functions()["Functions"]
    }

    def give(changes: dict[str, str]) -> None:
        for name, variables in before.items():
            functions.update_function_configuration(
                FunctionName=name, Environment={"Variables": variables | changes}
            )

    give({Variable.TUNING.value: json.dumps(tuning)})
    try:
        yield
    finally:
        give({})
