"""Runs of a deployed environment, against a scripted AWS: what MiniStack does not do."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from s3unzip.errors import AccessDeniedError, S3UnzipError, ServiceFaultError, StorageError
from s3unzip.operate.runs import DeployedRuns
from s3unzip.stores.config import StoreConfig
from tests.support.servers import Asked, HttpServer, Reply, s3_error

MACHINE = "arn:aws:states:us-east-1:000000000000:stateMachine:Runs"
RUN = "2026-11-23/203532-a-fcee8280"
OUTPUTS = "".join(
    f"<member><OutputKey>{key}</OutputKey><OutputValue>{value}</OutputValue></member>"
    for key, value in (
        ("StateMachineArn", MACHINE),
        ("WorkBucket", "work"),
        ("PlanFunction", "plan"),
    )
)
STACK = f"""<DescribeStacksResponse xmlns="http://cloudformation.amazonaws.com/doc/2010-05-15/">
<DescribeStacksResult><Stacks><member><StackName>s3unzip-dev</StackName>
<CreationTime>2026-01-01T00:00:00Z</CreationTime><StackStatus>CREATE_COMPLETE</StackStatus>
<Outputs>{OUTPUTS}</Outputs></member></Stacks></DescribeStacksResult></DescribeStacksResponse>"""


def _answer(http_status: int = 200, /, **fields: object) -> Reply:
    return Reply(http_status, json.dumps(fields).encode())


GONE = _answer(400, __type="ExecutionDoesNotExist", message="no")
DESCRIBED = _answer(executionArn="x", stateMachineArn=MACHINE, status="RUNNING", startDate=1)
MAPS = _answer(
    mapRuns=[
        {"mapRunArn": name, "executionArn": "x", "stateMachineArn": "x", "startDate": date}
        for date, name in enumerate(("old", "new"))
    ]
)
DENIED = Reply(403, b"<E><Error><Code>AccessDenied</Code><Message>no</Message></Error></E>")


@dataclass(slots=True)
class Account:
    """An account with one execution; its Step Functions answer by operation.

    The user may describe one stack only, whose name does not begin with "s3unzip-".
    """

    states: dict[str, Reply] = field(default_factory=dict)

    def __call__(self, asked: Asked) -> Reply:
        if b"StackName=s3unzip-dev" in asked.body:
            return DENIED
        if b"Action=DescribeStacks" in asked.body:
            return Reply(200, STACK.encode(), {"Content-Type": "text/xml"})
        operation = asked.headers["x-amz-target"].partition(".")[2]
        is_known = json.loads(asked.body).get("executionArn", "").endswith(RUN.replace("/", "-"))
        return self.states.get(operation, DESCRIBED if is_known else GONE)  # DescribeExecution


def _runs_at(server: HttpServer) -> DeployedRuns:
    return DeployedRuns("dev", StoreConfig(endpoint_url=server.url))


OPERATIONS: dict[str, Callable[[DeployedRuns], object]] = {
    "ListExecutions": lambda runs: list(runs.recent(1)),
    "ListMapRuns": lambda runs: runs.map_counts(RUN),
    "StopExecution": lambda runs: runs.stop(RUN),
    "DescribeExecution": lambda runs: runs.state(RUN),
}


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize(
    ("refusal", "kind", "line"),
    [
        (
            _answer(400, __type="AccessDeniedException", message="because"),
            AccessDeniedError,
            "AccessDeni.*: because$",
        ),
        (
            _answer(400, __type="UnrecognizedClientException", message="no"),
            AccessDeniedError,
            "no; .* enabled the region",
        ),
        (
            _answer(403, __type="InvalidSignatureException", message="no"),
            AccessDeniedError,
            "no; .* this machine's clock",
        ),
        (Reply(403, b"<html>Blocked"), StorageError, r"answer as AWS does \(HTTP 403\); check"),
        (Reply(403, b'"Forbidden"'), ServiceFaultError, "does not answer as AWS does; check"),
        (
            Reply(403, b'{"message": {"text": "no"}}'),
            AccessDeniedError,
            "403: {'text': 'no'}$",
        ),
        (
            _answer(500, __type="InternalFailure", message="because"),
            ServiceFaultError,
            "InternalFailure: because$",
        ),
    ],
    ids=[
        "denied",
        "an unknown key",
        "a wrong signature",
        "the page of a proxy",
        "a text in JSON",
        "a message that is no text",
        "a fault",
    ],
)
def test_a_call_that_is_refused(
    operation: str, refusal: Reply, kind: type[S3UnzipError], line: str
) -> None:
    """An operator learns which action was refused, why, and what to do."""
    with (
        HttpServer(Account({operation: refusal})) as server,
        pytest.raises(kind, match=f"states:{operation}: .*{line}"),
    ):
        OPERATIONS[operation](_runs_at(server))


@pytest.mark.parametrize(
    ("refusal", "line"),
    [
        # A server of S3 alone answers in a form without a code that botocore reads.
        (
            s3_error(405, "MethodNotAllowed"),
            r"does not answer as AWS does \(HTTP 405\); check --endpoint-url",
        ),
        # The user may describe one stack only, and has typed the name of another one.
        (DENIED, "cloudformation:DescribeStacks: .*; check --env, --profile and --region"),
        # An answer without the stack.
        (
            Reply(200, b"<a><DescribeStacksResult/></a>"),
            "DescribeStacks: the endpoint does not answer as AWS does",
        ),
        (
            Reply(200, b"<a><DescribeStacksResult><Stacks/></DescribeStacksResult></a>"),
            "DescribeStacks: the endpoint does not answer as AWS does",
        ),
        (
            Reply(200, STACK.replace("<OutputValue>work</OutputValue>", "").encode()),
            "environment dev: the endpoint does not answer as AWS does",
        ),
        # The page of a proxy or of a portal.
        (Reply(200, b"<html/>"), "DescribeStacks: the endpoint does not answer as AWS does"),
        (Reply(200, b"Please sign in"), "DescribeStacks: the endpoint does not answer as AWS does"),
    ],
)
def test_a_stack_that_cannot_be_described_is_told(refusal: Reply, line: str) -> None:
    """The line says which request was refused."""
    with HttpServer(lambda _: refusal) as server, pytest.raises(S3UnzipError, match=line):
        _runs_at(server)


def test_items_are_those_of_the_latest_map() -> None:
    """A run has several Maps one after the other; what was lost is counted together."""
    with HttpServer(
        Account(
            {
                "ListMapRuns": MAPS,
                "DescribeMapRun": _answer(
                    itemCounts={
                        "pending": 1,
                        "running": 2,
                        "succeeded": 3,
                        "failed": 4,
                        "timedOut": 5,
                        "aborted": 6,
                    }
                ),
            }
        )
    ) as server:
        assert _runs_at(server).map_counts(RUN) == {"waiting": 1, "running": 2, "lost": 15}
        assert server.asked[-1].body == b'{"mapRunArn": "new"}'
    with HttpServer(Account({"ListMapRuns": _answer(mapRuns=[])})) as server:
        assert _runs_at(server).map_counts(RUN) == {}


@pytest.mark.parametrize(
    ("states", "ask", "action"),
    [
        *(
            ({"ListExecutions": answer}, lambda runs: list(runs.recent(1)), "ListExecutions")
            for answer in (
                _answer(),
                _answer(executions=[{"status": "RUNNING"}]),
                _answer(executions=[None]),
                Reply(200, b"[]"),
            )
        ),
        (
            {"ListMapRuns": MAPS, "DescribeMapRun": _answer(itemCounts={"pending": 1})},
            lambda runs: runs.map_counts(RUN),
            "DescribeMapRun",
        ),
        (
            {"ListMapRuns": _answer(mapRuns=[{}]), "DescribeMapRun": _answer()},
            lambda runs: runs.map_counts(RUN),
            "ListMapRuns",
        ),
    ],
)
def test_answers_in_another_form(
    states: dict[str, Reply], ask: Callable[[DeployedRuns], object], action: str
) -> None:
    """The line names the request whose answer lacks a field, or is no answer of AWS."""
    with (
        HttpServer(Account(states)) as server,
        pytest.raises(ServiceFaultError, match=f"{action}: the endpoint does not answer"),
    ):
        ask(_runs_at(server))


def test_commands_keep_to_the_rate_of_an_action() -> None:
    """DescribeExecution allows 15 requests a second, and `submit --missing` looks up thousands."""
    with HttpServer(Account()) as server:
        assert _runs_at(server).client("stepfunctions").meta.config.retries["mode"] == "adaptive"


def test_a_stopped_run_that_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a minute it is an error, not a wait without end."""
    monkeypatch.setattr("s3unzip.operate.runs.SHOWN_SECONDS", 0.0)
    with (
        HttpServer(Account({"StopExecution": _answer(stopDate=1)})) as server,
        pytest.raises(ServiceFaultError, match="still running"),
    ):
        _runs_at(server).stop(RUN)
