"""What goes wrong with a run, and how it goes on, on the embedded AWS."""

import json
import re

import pytest

from embedded.pipeline import DeployedPipeline
from s3unzip.model import OnConflict, Report, Verdict
from s3unzip.run_ids import execution_name
from s3unzip.settings import Variable
from tests.e2e.functions import (
    await_value,
    find_function,
    members_of,
    with_handler,
    with_variables,
    without_workers,
)
from tests.e2e.test_pipeline import STATE_MACHINE, executions, name_of, put_event, wait_until_idle
from tests.support.zips import DEFLATE, Entry, build

FAULT_SECONDS = 120.0  # after which a message that failed comes again, at the latest
NEXT = re.compile(r'"archive not taken".*?"next_seconds": ?([0-9.]+)')


def start_held(pipeline: DeployedPipeline, key: str, body: bytes) -> str:
    """Put an archive whose run finds no worker; return the run when its execution is at work."""
    pipeline.put(key, body)

    def find() -> str | None:
        run = pipeline.find_run(key)
        return run if run is not None and pipeline.status(run) == "RUNNING" else None

    return await_value(pipeline, find)


def _extracted(pipeline: DeployedPipeline, run: str, members: int) -> Report:
    def find() -> Report | None:
        report = pipeline.find_report(run)
        return report if report is not None and report.extracted == members else None

    return await_value(pipeline, find)


def _ended(pipeline: DeployedPipeline, run: str) -> Report:
    return await_value(pipeline, lambda: pipeline.report(run))


def test_run_without_workers_waits(pipeline: DeployedPipeline) -> None:
    """Tasks that find no worker wait, and are done when there is one again."""
    with with_variables(pipeline, "intake", STATE_MACHINE), without_workers(pipeline, "extract"):
        run = start_held(pipeline, "waits.zip", build(*members_of(10)))
        assert pipeline.find_report(run) is None
    report = _ended(pipeline, run)
    assert (report.verdict, report.extracted) == (Verdict.COMPLETED, 10), pipeline.logs()


def test_run_that_fails_goes_on_with_a_new_event(pipeline: DeployedPipeline) -> None:
    """Tasks that fail in three rounds end the run FAILED; the archive's event again resumes it."""
    with with_variables(pipeline, "intake", STATE_MACHINE):
        with with_handler(pipeline, "extract", "s3unzip.aws.not_there.handler"):
            report = pipeline.extract("fails.zip", build(*members_of(10)))
        assert (report.verdict, report.missing, report.rounds) == (Verdict.FAILED, 10, 3)
        put_event(pipeline, "fails.zip")
        found = _extracted(pipeline, report.run, 10)
    assert found.verdict is Verdict.COMPLETED
    wanted = {f"fails/{name_of(one)}": one.content for one in members_of(10)}
    assert pipeline.members("fails/") == wanted
    assert execution_name(f"{report.run}-r2") in executions(pipeline)
    wait_until_idle(pipeline)


def test_aborted_run_is_reported_and_goes_on(pipeline: DeployedPipeline) -> None:
    """An execution that somebody stops has a FAILED report; a new execution does what is left."""
    states, machine = pipeline.client("stepfunctions"), pipeline.outputs["StateMachineArn"]
    with with_variables(pipeline, "intake", STATE_MACHINE), without_workers(pipeline, "extract"):
        run = start_held(pipeline, "aborted.zip", build(*members_of(10)))
        name = machine.replace(":stateMachine:", ":execution:")
        states.stop_execution(executionArn=f"{name}:{execution_name(run)}")
        report = _ended(pipeline, run)
    assert (report.verdict, report.reason, report.missing) == (Verdict.FAILED, "stopped", 10)
    assert "ABORTED" in str(report.message)
    states.start_execution(
        stateMachineArn=machine, name=execution_name(f"{run}-r2"), input=json.dumps({"run": run})
    )
    report = _extracted(pipeline, run, 10)
    assert report.verdict is Verdict.COMPLETED


@pytest.mark.parametrize(("seconds", "said"), [(0, "run has a report"), (60, "archive")])
def test_late_news_of_a_failure_changes_no_report(
    pipeline: DeployedPipeline, seconds: int, said: str
) -> None:
    """What follows the end is repeated only if the execution that failed wrote the report."""
    report = pipeline.extract(f"late-{seconds}.zip", build(*members_of(3)))
    times = {"startDate": report.started * 1_000, "stopDate": (report.started + seconds) * 1_000}
    detail = {"name": execution_name(report.run), "status": "FAILED", "input": "{}", **times}
    settle = find_function(pipeline, "settle")["FunctionName"]
    event = json.dumps({"detail": detail})

    def logged() -> set[str]:
        """Tell it once more, for MiniStack may show a line only after the next invocation."""
        answer = pipeline.client("lambda").invoke(FunctionName=settle, Payload=event)
        assert json.loads(answer["Payload"].read()) == {}
        lines = (json.loads(one) for one in pipeline.logs().splitlines() if report.run in one)
        return {one["message"] for one in lines if settle == one.get("function_name")}

    assert await_value(pipeline, logged) == {said}
    assert pipeline.find_report(report.run) == report


def test_run_that_cannot_be_planned_is_reported(pipeline: DeployedPipeline) -> None:
    """If the state Plan fails for good, the run has a FAILED report without a plan."""
    with with_variables(
        pipeline, "intake", {Variable.TUNING.value: json.dumps({"tail_bytes": 1_000})}
    ):
        with with_handler(pipeline, "plan", "s3unzip.aws.not_there.handler"):
            report = pipeline.extract("unplanned.zip", build(*members_of(100)))
        assert (report.verdict, report.members) == (Verdict.FAILED, 0)
        put_event(pipeline, "unplanned.zip")
        found = _extracted(pipeline, report.run, 100)
    assert found.verdict is Verdict.COMPLETED


def test_replaced_archive(pipeline: DeployedPipeline) -> None:
    """The older run writes its members last; then those of the newest version are written again."""
    older = {f"f{n}.txt": b"older" * 100 for n in range(12)}
    newer = {f"f{n}.txt": b"newer" * 100 for n in range(6)}

    def body(members: dict[str, bytes]) -> bytes:
        return build(*(Entry(name, content, DEFLATE) for name, content in members.items()))

    with without_workers(pipeline, "extract"):
        with with_variables(pipeline, "intake", STATE_MACHINE):
            run = start_held(pipeline, "replaced.zip", body(older))
        pipeline.put("replaced.zip", body(newer))
        await_value(pipeline, lambda: len(pipeline.member_keys("replaced/")) == len(newer))
    assert _ended(pipeline, run).extracted == 12
    runs = await_value(pipeline, lambda: [name for name in pipeline.runs() if "again" in name])
    again = await_value(pipeline, lambda: pipeline.find_report(runs[0]))
    assert again.options.on_conflict is OnConflict.SKIP_UNCHANGED
    assert (again.verdict, again.extracted + again.unchanged) == (Verdict.COMPLETED, 6)
    wanted = older | newer
    assert pipeline.members("replaced/") == {f"replaced/{name}": wanted[name] for name in wanted}


def test_a_message_is_retried_within_two_minutes(pipeline: DeployedPipeline) -> None:
    """The queue hides a message for minutes; after a fault it comes back much sooner."""
    with with_variables(
        pipeline, "intake", {Variable.WORK_BUCKET.value: "no-such-bucket"}, idle=False
    ):
        pipeline.put("fault.zip", build(Entry("a", b"a" * 500)))
        await_value(pipeline, lambda: "no-such-bucket" in pipeline.logs())
    assert pipeline.wait("fault.zip").verdict is Verdict.COMPLETED
    waits = [float(found[1]) for found in NEXT.finditer(pipeline.logs())]
    assert waits
    assert max(waits) < FAULT_SECONDS


WRAPPED = {"Type": "Notification", "TopicArn": "arn:aws:sns:x", "Message": '{"AlarmName": "a"}'}


@pytest.mark.parametrize(
    ("body", "reason"),
    [("no event", "JSONDecodeError"), (json.dumps(WRAPPED), "it has ['AlarmName']")],
)
def test_what_is_no_event_is_soon_a_dead_letter(
    pipeline: DeployedPipeline, body: str, reason: str
) -> None:
    """The queue's alarm notifies a person, and the log says why; a message of SNS is opened."""
    sqs = pipeline.client("sqs")
    sqs.send_message(QueueUrl=pipeline.outputs["QueueUrl"], MessageBody=body)
    await_value(pipeline, lambda: pipeline.waiting("DeadLettersUrl") == 1)
    dead = sqs.get_queue_attributes(
        QueueUrl=pipeline.outputs["DeadLettersUrl"], AttributeNames=["QueueArn"]
    )
    assert dead["Attributes"]["QueueArn"] == pipeline.outputs["DeadLettersArn"]
    assert "the message is not an S3 event" in pipeline.logs()
    assert reason in pipeline.logs()
    sqs.purge_queue(QueueUrl=pipeline.outputs["DeadLettersUrl"])
