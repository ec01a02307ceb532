"""Runs of a deployed environment, against a scripted AWS: what MiniStack does not do."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import pytest

from s3unzip.errors import (
    AccessDeniedError,
    NotFoundError,
    S3UnzipError,
    ServiceFaultError,
    UsageError,
)
from s3unzip.operate.runs import DeployedRuns
from s3unzip.reporting.retry import run_of
from s3unzip.runs.watch import Items
from s3unzip.stores.s3.session import S3Access
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
    return DeployedRuns("dev", S3Access(endpoint_url=server.url))


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
