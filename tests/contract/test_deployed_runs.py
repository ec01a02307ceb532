"""Runs of a deployed environment, against a scripted AWS: what MiniStack does not do."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import pytest
from s3unzip.settling.retry import run_of

from s3unzip.errors import (
    AccessDeniedError,
    NotFoundError,
    S3UnzipError,
    ServiceFaultError,
    UsageError,
)
from s3unzip.operate.runs import DeployedRuns
from s3unzip.runs.watch import Items
from tests.servers import Asked, HttpServer, Reply

MACHINE = "arn:aws:states:us-east-1:000000000000:stateMachine:Runs"
STACK = """<DescribeStacksResponse xmlns="http://cloudformation.amazonaws.com/doc/2010-05-15/">
<DescribeStacksResult><Stacks><member><StackName>s3unzip-dev</StackName>
<CreationTime>2026-01-01T00:00:00Z</CreationTime><StackStatus>CREATE_COMPLETE</StackStatus>
<Outputs>{}</Outputs></member></Stacks></DescribeStacksResult></DescribeStacksResponse>"""
OUTPUT = "<member><OutputKey>{}</OutputKey><OutputValue>{}</OutputValue></member>"
NO_KEYS = '<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"></ListBucketResult>'

States = dict[str, tuple[int, dict[str, object]]]  # status and answer by operation


@dataclass(slots=True)
class Account:
    """An account with one stack, whose Step Functions answer by operation."""

    states: States = field(default_factory=dict)
    outputs: dict[str, str] = field(
        default_factory=lambda: {"StateMachineArn": MACHINE, "WorkBucket": "work"}
    )
    called: list[str] = field(default_factory=list)

    def __call__(self, asked: Asked) -> Reply:
        """Answer one request of any of the three services."""
        operation = asked.headers.get("x-amz-target", "").partition(".")[2]
        if operation:
            self.called.append(operation)
            status, answer = self.states[operation]
            return Reply(status, json.dumps(answer).encode())
        if b"Action=DescribeStacks" in asked.body:
            outputs = "".join(OUTPUT.format(*one) for one in self.outputs.items())
            return Reply(200, STACK.format(outputs).encode(), {"Content-Type": "text/xml"})
        if asked.method == "POST":  # DeleteObjects
            self.called.append("delete")
            return Reply(200, b"<DeleteResult></DeleteResult>")
        return Reply(200, NO_KEYS.encode(), {"Content-Type": "application/xml"})


def runs_at(server: HttpServer) -> DeployedRuns:
    """Return the runs of the scripted account."""
    return DeployedRuns("dev", StoreConfig(endpoint_url=server.url))


def failed() -> States:
    """Return the answers of an account whose run failed."""
    described: dict[str, object] = {
        "executionArn": "x",
        "stateMachineArn": MACHINE,
        "status": "FAILED",
        "startDate": 1,
    }
    return {"DescribeExecution": (200, described)}


def test_redrive_clears_the_stop_first() -> None:
    """No task of a redriven run would begin while the reason to stop is on record."""
    account = Account(failed() | {"RedriveExecution": (200, {"redriveDate": 1})})
    with HttpServer(account) as server:
        runs_at(server).redrive("run-1")
    assert account.called == ["DescribeExecution", "delete", "RedriveExecution"]


def test_a_run_that_cannot_be_redriven() -> None:
    """What Step Functions says is passed on as a wrong request."""
    refusal = {"__type": "ExecutionNotRedrivable", "message": "it succeeded"}
    account = Account(failed() | {"RedriveExecution": (400, dict(refusal))})
    with HttpServer(account) as server, pytest.raises(UsageError, match="it succeeded"):
        runs_at(server).redrive("run-1")


@pytest.mark.parametrize(
    ("state", "said"),
    [("RUNNING", "s3unzip watch run-1"), ("SUCCEEDED", "s3unzip resume run-1 --failed")],
)
def test_a_run_with_nothing_to_redrive(state: str, said: str) -> None:
    """The words name the command that helps instead of a code of the service."""
    described = {"executionArn": "x", "stateMachineArn": MACHINE, "status": state, "startDate": 1}
    refusal = {"__type": "ExecutionNotRedrivable", "message": "InvalidAction"}
    account = Account(
        {"DescribeExecution": (200, described), "RedriveExecution": (400, dict(refusal))}
    )
    with HttpServer(account) as server, pytest.raises(UsageError, match=said) as raised:
        runs_at(server).redrive("run-1")
    assert "InvalidAction" not in str(raised.value)


def test_a_run_without_execution_cannot_be_redriven() -> None:
    """A rejected archive has nothing to go on with."""
    gone: States = {
        "DescribeExecution": (400, {"__type": "ExecutionDoesNotExist", "message": "no"})
    }
    with HttpServer(Account(gone)) as server, pytest.raises(NotFoundError):
        runs_at(server).redrive("run-1")


def test_a_stack_that_is_not_ours() -> None:
    """A stack without the outputs is named."""
    with (
        HttpServer(Account(outputs={"Other": "x"})) as server,
        pytest.raises(NotFoundError, match="s3unzip-dev"),
    ):
        runs_at(server)


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (400, "AccessDeniedException", AccessDeniedError),
        (400, "UnrecognizedClientException", AccessDeniedError),
        (500, "InternalFailure", ServiceFaultError),
    ],
)
def test_refusals(status: int, code: str, kind: type[S3UnzipError]) -> None:
    """An operator learns which call was refused, and why."""
    account = Account({"ListExecutions": (status, {"__type": code, "message": "because"})})
    with HttpServer(account) as server, pytest.raises(kind, match="states:ListExecutions"):
        list(runs_at(server).recent(1))


def answers(operation: str, status: int, answer: dict[str, object]) -> States:
    """Return the answers of an account whose run goes on, but for one operation."""
    running = failed()["DescribeExecution"][1] | {"status": "RUNNING", "input": "{}"}
    return {"DescribeExecution": (200, running), operation: (status, answer)}


def test_items_are_those_of_the_latest_map() -> None:
    """A run has several Maps one after the other; what was lost is counted together."""
    counts = {"pending": 1, "running": 2, "succeeded": 3, "failed": 4, "timedOut": 5, "aborted": 6}
    maps: dict[str, object] = {
        "mapRuns": [
            {"mapRunArn": "old", "executionArn": "x", "stateMachineArn": "x", "startDate": 1},
            {"mapRunArn": "new", "executionArn": "x", "stateMachineArn": "x", "startDate": 2},
        ]
    }
    described: dict[str, object] = {"itemCounts": counts}
    account = Account(answers("ListMapRuns", 200, maps) | {"DescribeMapRun": (200, described)})
    with HttpServer(account) as server:
        assert runs_at(server).items("run-1") == Items(1, 2, 3, 15)
        assert server.asked[-1].body == b'{"mapRunArn": "new"}'


def test_no_map_has_begun() -> None:
    """Between two Maps, and before the first, there is nothing to count."""
    with HttpServer(Account(answers("ListMapRuns", 200, {"mapRuns": []}))) as server:
        assert runs_at(server).items("run-1") is None


@pytest.mark.parametrize(
    ("operation", "call", "action"),
    [
        ("ListMapRuns", "items", "states:DescribeMapRun"),
        ("StopExecution", "stop", "states:StopExecution"),
        ("RedriveExecution", "redrive", "states:RedriveExecution"),
        ("DescribeExecution", "state", "states:DescribeExecution"),
    ],
)
def test_a_call_that_is_refused(operation: str, call: str, action: str) -> None:
    """Every command names the missing action."""
    refusal: dict[str, object] = {"__type": "AccessDeniedException", "message": "no"}
    account = Account(answers(operation, 400, refusal))
    with HttpServer(account) as server, pytest.raises(AccessDeniedError, match=action):
        getattr(runs_at(server), call)("run-1")


def test_a_stopped_run_that_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a minute it is an error, not a wait without end."""
    monkeypatch.setattr("s3unzip.operate.runs.STOP_SECONDS", 0.0)
    account = Account(answers("StopExecution", 200, {"stopDate": 1}))
    with HttpServer(account) as server, pytest.raises(ServiceFaultError, match="still running"):
        runs_at(server).stop("run-1")


@pytest.mark.parametrize(
    ("execution", "run"),
    [("a-1f", "a-1f"), ("a-1f-retry-0002", "a-1f"), ("a-retry-x", "a-retry-x")],
)
def test_the_run_of_an_execution(execution: str, run: str) -> None:
    """A retry's execution is named after its run."""
    assert run_of(execution) == run


def test_items_that_wait_for_their_redrive_are_waiting() -> None:
    """A redriven Map Run counts them apart from those that never began."""
    listed = {"executionArn": "x", "mapRunArn": "m", "stateMachineArn": MACHINE, "startDate": 1}
    counts = dict.fromkeys(
        ("failed", "timedOut", "aborted", "total", "resultsWritten", "failuresNotRedrivable"), 0
    )
    counts |= {"pending": 2, "pendingRedrive": 3, "running": 1, "succeeded": 4, "timedOut": 5}
    run = {"status": "RUNNING", "itemCounts": counts}
    answers = failed() | {
        "ListMapRuns": (200, {"mapRuns": [listed]}),
        "DescribeMapRun": (200, dict(run)),
    }
    with HttpServer(Account(answers)) as server:
        items = runs_at(server).items("run-1")
    assert items == Items(waiting=5, running=1, succeeded=4, failed=5)
