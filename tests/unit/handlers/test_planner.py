"""The planner: a state that plans what the function at the queue cannot; over moto's services."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from s3unzip.handlers import planner, report

from s3unzip import run_files
from s3unzip.model import UploadRecord, Verdict
from s3unzip.runs.records import RunRecords
from s3unzip.settings import Variable
from tests.unit.handlers.pipeline import Functions, object_created
from tests.zips import DEFLATE, Entry, build

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.account import Account

SMALL_TAIL = {Variable.TUNING.value: json.dumps({"tail_bytes": 300})}
ARCHIVE = build(*(Entry(f"d/f{n}.txt", b"%d" % n * 100, DEFLATE) for n in range(20)))


@pytest.fixture
def started(deploy: Callable[..., Functions], account: Account) -> Functions:
    """The functions, and an execution of an archive with a directory that is too large."""
    functions = deploy(**SMALL_TAIL)
    account.put("a.zip", ARCHIVE)
    assert functions.plan(object_created("a.zip")) == []
    return functions


def call_planner(functions: Functions, run: str) -> dict[str, Any]:
    """Call the planner as its state does."""
    event = {"request": functions.told(run)["request"], "run": run}
    answer: dict[str, Any] = planner.handler(event, functions.invocation)
    return answer


def records(functions: Functions, run: str) -> RunRecords:
    """Return the records of a run."""
    return RunRecords(functions.run_store(run))


def test_a_large_directory_is_planned_by_the_execution(
    started: Functions, account: Account
) -> None:
    """The function at the queue writes nothing; the planner's answer is what the Maps read."""
    (run,) = account.executions()
    assert account.objects("work", f"runs/{run}/") == {}
    assert started.told(run)["planned"] is False
    assert started.told(run)["warm"] == [0]  # one task's worker
    answer = call_planner(started, run)
    assert (answer["refused"], answer["run"]["id"]) == (False, run)
    inline = json.loads(json.dumps(answer["inline"]))  # as Lambda answers
    assert started.lines(answer["work"]["whole"]) == inline["whole"]
    assert len(answer["inline"]["whole"]) == 1


def test_a_planner_that_is_tried_again_keeps_the_plan(started: Functions, account: Account) -> None:
    """A complete plan is kept, and a repeated event starts nothing."""
    (run,) = account.executions()
    answer = call_planner(started, run)
    before = account.objects("work")
    assert call_planner(started, run) == answer
    assert started.plan(object_created("a.zip")) == []
    assert account.objects("work") == before
    assert account.executions() == [run]


def test_an_archive_that_the_planner_refuses(
    deploy: Callable[..., Functions], account: Account
) -> None:
    """Its execution ends there, with a report and an event."""
    functions = deploy(**SMALL_TAIL)
    heard = account.listen()
    account.put("bad.zip", bytes(70_000))
    functions.plan(object_created("bad.zip"))
    (run,) = account.executions()
    assert call_planner(functions, run) == {"refused": True}
    (event,) = account.receive(heard)
    assert (event["detail-type"], event["detail"]["run"]) == ("Archive Rejected", run)


def test_a_refusal_by_a_planner_that_was_stopped_stays(
    deploy: Callable[..., Functions], account: Account
) -> None:
    """A planner goes on after an abort: its report and its event are the only ones."""
    functions = deploy(**SMALL_TAIL)
    account.put("bad.zip", bytes(70_000))
    functions.plan(object_created("bad.zip"))
    (run,) = account.executions()
    call_planner(functions, run)
    heard = account.listen()
    detail = {"name": run, "status": "ABORTED", "input": json.dumps(functions.told(run))}
    report.handler({"detail": detail}, functions.invocation)
    assert account.receive(heard) == []
    found = records(functions, run).find_report()
    assert found is not None
    assert found.verdict is Verdict.REJECTED


@pytest.mark.parametrize("newer", [b"", ARCHIVE + b"x", bytes(500)])
def test_an_archive_that_is_overwritten_before_it_is_planned(
    started: Functions, account: Account, newer: bytes
) -> None:
    """The run is of the version in its event; the newer version has its own run."""
    (run,) = account.executions()
    account.put("a.zip", newer)
    assert call_planner(started, run) == {"refused": True}
    found = records(started, run).find_report()
    assert found is not None
    assert (found.run, found.verdict) == (run, Verdict.SOURCE_CHANGED)


@dataclass(frozen=True, slots=True)
class Redriven:
    """Step Functions, of which an execution was redriven so often."""

    redrives: int

    def describe_execution(self, *, executionArn: str) -> dict[str, Any]:  # noqa: N803
        """Return what the API reference of DescribeExecution says."""
        return {"executionArn": executionArn, "status": "RUNNING", "redriveCount": self.redrives}


@dataclass(slots=True)
class RedrivenMeanwhile:
    """Step Functions, of which an execution is redriven after so many questions."""

    after: int = 1
    asked: int = 0

    def describe_execution(self, *, executionArn: str) -> dict[str, Any]:  # noqa: N803
        """Return what the API reference of DescribeExecution says."""
        self.asked += 1
        return {"executionArn": executionArn, "redriveCount": int(self.asked > self.after)}


def redrivable(functions: Functions, account: Account, status: str) -> dict[str, Any]:
    """Return what EventBridge says of the one execution, which was not redriven by then."""
    (run,) = account.executions()
    return {
        "name": run,
        "stateMachineArn": account.outputs["StateMachineArn"],
        "status": status,
        "redriveCount": 0,
        "input": json.dumps(functions.told(run)),
    }


@pytest.mark.parametrize(("redrives", "reported"), [(0, True), (1, False)])
def test_a_failure_that_comes_after_the_redrive(
    started: Functions,
    account: Account,
    monkeypatch: pytest.MonkeyPatch,
    redrives: int,
    *,
    reported: bool,
) -> None:
    """It writes and sends nothing: the redriven execution reports its own end."""
    (run,) = account.executions()
    heard = account.listen()
    states = "s3unzip.aws.admission.opening.open_client"
    monkeypatch.setattr(states, lambda _: Redriven(redrives))
    detail = redrivable(started, account, "FAILED")
    answer = report.handler({"detail": detail}, started.invocation)
    assert answer["verdict"] == "FAILED"
    assert len(account.receive(heard)) == reported
    assert (records(started, run).find_report() is not None) is reported


@pytest.mark.parametrize("planned", [False, True], ids=["unplanned", "planned"])
def test_a_redrive_while_the_failure_is_reported(
    started: Functions, account: Account, monkeypatch: pytest.MonkeyPatch, *, planned: bool
) -> None:
    """The report and the event of the redriven execution stay the last ones."""
    (run,) = account.executions()
    if planned:
        started.plan_run(run)
    heard = account.listen()
    states = RedrivenMeanwhile()
    monkeypatch.setattr("s3unzip.aws.admission.opening.open_client", lambda _: states)
    detail = redrivable(started, account, "ABORTED")
    answer = report.handler({"detail": detail}, started.invocation)
    assert (answer["verdict"], answer["left"]) == ("ABORTED", 0)
    assert states.asked > 1
    assert account.receive(heard) == []
    found = records(started, run)
    assert found.find_report() is None
    assert found.find_failure() is None


@pytest.mark.parametrize(("planned", "last"), [(False, 3), (True, 4)])
def test_a_redrive_before_the_event_of_a_failure(
    started: Functions,
    account: Account,
    monkeypatch: pytest.MonkeyPatch,
    *,
    planned: bool,
    last: int,
) -> None:
    """The event is not sent once the report is written: the redriven execution sends its own."""
    (run,) = account.executions()
    if planned:
        started.plan_run(run)
    heard = account.listen()
    detail = redrivable(started, account, "ABORTED")
    for after, sent in ((last, 1), (last - 1, 0)):
        states = RedrivenMeanwhile(after)
        monkeypatch.setattr(
            "s3unzip.aws.admission.opening.open_client", lambda _, found=states: found
        )
        report.handler({"detail": detail}, started.invocation)
        assert states.asked == last
        assert records(started, run).find_failure() is not None
        assert len(account.receive(heard)) == sent


@pytest.mark.parametrize("newer", [None, bytes(70_000)], ids=["failed", "refused"])
def test_the_upload_of_a_killed_planner_is_aborted(
    started: Functions, account: Account, newer: bytes | None
) -> None:
    """It was begun to try the destination. The run has no plan, and so nothing to settle by."""
    (run,) = account.executions()
    s3 = account.client("s3")
    for key in ("a/d/f0.txt", "another run's"):
        s3.create_multipart_upload(Bucket="members", Key=key)
    records(started, run).write_upload("probe", UploadRecord("a/d/f0.txt"))
    if newer is None:
        detail = {"name": run, "status": "FAILED", "input": json.dumps(started.told(run))}
        report.handler({"detail": detail}, started.invocation)
    else:
        account.put("a.zip", newer)
        assert call_planner(started, run) == {"refused": True}
    left = s3.list_multipart_uploads(Bucket="members")["Uploads"]
    assert [upload["Key"] for upload in left] == ["another run's"]


def test_a_planner_that_fails_is_reported(started: Functions, account: Account) -> None:
    """The report of an execution that failed without a plan says so, and of which archive."""
    heard = account.listen()
    (run,) = account.executions()
    detail = {
        "name": run,
        "status": "FAILED",
        "error": "Runtime.OutOfMemory",
        "cause": "killed",
        "input": json.dumps(started.told(run)),
    }
    answer = report.handler({"detail": detail}, started.invocation)
    assert answer["verdict"] == "FAILED"
    found = records(started, run).find_report()
    assert found is not None
    assert (found.reason, found.source.key) == ("plan-failed", "a.zip")
    assert found.message == "the planner failed: Runtime.OutOfMemory: killed"
    (event,) = account.receive(heard)
    assert event["detail-type"] == "Archive Failed"
    assert call_planner(started, run)["refused"] is False  # as a redrive does


def test_a_small_directory_is_planned_once(
    deploy: Callable[..., Functions], account: Account
) -> None:
    """Repeated events leave an active plan unchanged, even with other settings."""
    functions = deploy()
    account.put("a.zip", ARCHIVE)
    functions.plan(object_created("a.zip"))
    (run,) = account.executions()
    assert functions.told(run)["planned"] is True
    before = account.objects("work")
    assert f"runs/{run}/{run_files.PLAN}" in before
    functions.plan(object_created("a.zip"))
    assert account.objects("work") == before
