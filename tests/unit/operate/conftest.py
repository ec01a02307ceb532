"""An environment in moto's account whose functions run here, and answers that moto has not."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import boto3
import pytest
from botocore.config import Config

from s3unzip.aws import extract, intake, plan, settle
from s3unzip.model import Report
from s3unzip.operate.checks import FUNCTION, OK, Answer, CheckResult, CheckStatus, run_check
from s3unzip.operate.doctor import ACCOUNT_CHECKS
from s3unzip.operate.runs import DeployedRuns
from s3unzip.run_ids import execution_name
from s3unzip.stores.config import StoreConfig
from tests.support.account import REGION, Account
from tests.support.contexts import Invocation
from tests.support.servers import Asked, HttpServer, Reply, set_variables
from tests.support.zips import Entry, build

SERVICES = (
    *("cloudformation", "cloudwatch", "events", "guardduty", "kms"),
    *("iam", "lambda", "logs", "s3", "secretsmanager", "sns", "sqs", "stepfunctions"),
)


def resource(logical: str, kind: str, physical: str) -> dict[str, str]:
    """Return a resource as CloudFormation lists it."""
    return {"LogicalResourceId": logical, "ResourceType": kind, "PhysicalResourceId": physical}


RESOURCES = (
    resource("FunctionsExtract1", FUNCTION, "extract"),
    resource("FunctionsPlan1", FUNCTION, "plan"),
    resource("AlarmsDeadLetters1", "AWS::CloudWatch::Alarm", "DeadLetters"),
    resource("IntakeArchivePut1", "AWS::Events::Rule", "ArchivePut"),
)


def deny(asked: Asked) -> Reply:
    """Refuse a request in the words of its protocol; SNS has a word of its own."""
    is_sns = b"Version=2010-03-31" in asked.body
    return refuse(asked, "AuthorizationError" if is_sns else "AccessDenied", 403)


def refuse(asked: Asked, code: str, status: int) -> Reply:
    """Answer a request with an error, in the words of its protocol."""
    if b"Action=" in asked.body:  # query
        return Reply(
            status,
            f"<ErrorResponse><Error><Code>{code}</Code></Error></ErrorResponse>".encode(),
            {"Content-Type": "text/xml"},
        )
    if "x-amz-target" in asked.headers:  # JSON
        return Reply(status, json.dumps({"__type": f"{code}Exception"}).encode())
    lambda_paths = ("/2015-03-31/", "/2016-08-19/", "/2019-09-30/")
    if asked.path.startswith((*lambda_paths, "/malware-protection-plan")):
        return Reply(status, b"{}", {"x-amzn-ErrorType": f"{code}Exception"})
    return Reply(status, f"<Error><Code>{code}</Code></Error>".encode())  # S3


@contextmanager
def answering(
    runs: DeployedRuns, answer: Callable[[Asked], Reply], *services: str
) -> Iterator[None]:
    """Let these services of an environment be answered by a function."""
    with HttpServer(answer) as server:
        for service in services:
            runs._clients[service, None] = boto3.client(
                service,  # type: ignore[call-overload]  # the stubs want each name spelt out
                endpoint_url=server.url,
                region_name=REGION,
                config=Config(retries={"total_max_attempts": 1}, s3={"addressing_style": "path"}),
            )
        yield
    for service in services:
        del runs._clients[service, None]  # the account's own is made when it is next asked for


def check(runs: DeployedRuns, name: str, status: CheckStatus, *words: str) -> None:
    """Assert what a check says, with advice unless all is well."""
    found = run_check(name, partial(ACCOUNT_CHECKS[name], runs))
    expect(found, status, *words)
    assert (found.name, bool(found.advice)) == (name, status is not OK)


def expect(found: Answer | CheckResult, status: CheckStatus, *words: str) -> None:
    """Assert the status of an answer, and words of its message and advice."""
    text = f"{found.message} -> {found.advice}"
    assert (found.status, [word for word in words if word not in text]) == (status, []), text


GOOD = build(Entry("good", b"g" * 300), Entry("other", b"x" * 500))


def make_bad() -> bytes:
    """Return an archive with a member that fails."""
    body = bytearray(GOOD)
    body[body.index(b"x" * 500)] ^= 1
    return bytes(body)


@dataclass
class Site:
    """The environment ``dev``; small archives are runs of the state machine, too."""

    account: Account
    invocation: Invocation

    @property
    def runs(self) -> DeployedRuns:
        return DeployedRuns("dev", StoreConfig(endpoint_url=self.account.url))

    def begin(self, key: str, body: bytes = GOOD) -> str:
        self.account.put(key, body)
        return self.notify(key)

    def notify(self, key: str) -> str:
        """Take the event of an archive; return the run whose execution begins, or nothing."""
        before = set(self.account.executions())
        event = {
            "detail-type": "Object Created",
            "source": "aws.s3",
            "time": "2026-01-01T00:00:01Z",
            "detail": {"bucket": {"name": "arrivals"}, "object": {"key": key}},
        }
        assert self.take(json.dumps(event)) == []
        new = set(self.account.executions()) - before
        return self.runs.find(new.pop()) if new else ""

    def extract(self, key: str, body: bytes = GOOD) -> str:
        """Do the whole run of an archive; return it."""
        run = self.begin(key, body)
        self.work(run)
        return run

    def take(self, *bodies: str) -> list[str]:
        """Call the intake function with messages, or with those queued; return what it left."""
        texts = bodies or map(json.dumps, self.account.receive(self.account.outputs["QueueUrl"]))
        records = [
            {
                "messageId": str(number),
                "receiptHandle": "none",
                "body": body,
                "attributes": {"ApproximateReceiveCount": "1"},
            }
            for number, body in enumerate(texts)
        ]
        answer = intake.handler({"Records": records}, self.invocation)
        return [message["itemIdentifier"] for message in answer["batchItemFailures"]]

    def work(self, run: str, number: int = 1) -> None:
        execution = execution_name(run, number)
        step = self.given(execution)
        if "next" not in step:
            step = plan.handler(step, self.invocation)
        while step["next"] != "done":
            for task in self.tasks(step):
                extract.handler({"run": run, "task": task}, self.invocation)
            step = settle.handler(step, self.invocation)
        self.end(execution)

    def tasks(self, step: dict[str, Any]) -> list[dict[str, Any]]:
        if step["next"] == "few":
            return list(step["tasks"])
        (listed,) = self.account.objects("work", step["list"]).values()
        return [json.loads(line) for line in listed.splitlines()]

    def given(self, execution: str) -> dict[str, Any]:
        described = self._machines.describe_execution(executionArn=self._arn(execution))
        return dict(json.loads(described["input"]))

    def report(self, run: str) -> Report:
        return self.runs.records(run).read_report()

    def start(self, execution: str, given: str = "{}") -> None:
        self._machines.start_execution(
            stateMachineArn=self.account.outputs["StateMachineArn"], name=execution, input=given
        )

    def end(self, execution: str) -> None:
        self._machines.stop_execution(executionArn=self._arn(execution))

    def fail(self, run: str, number: int = 1) -> None:
        """Let an execution of a run fail, and take the news of it."""
        self.fail_execution(execution_name(run, number))

    def fail_execution(self, name: str) -> None:
        self.end(name)
        execution = self._machines.describe_execution(executionArn=self._arn(name))
        settle.handler(
            {
                "detail": {
                    "name": name,
                    "status": "FAILED",
                    "input": execution["input"],
                    "startDate": execution["startDate"].timestamp() * 1_000,
                    "stopDate": (time.time() + 1) * 1_000,
                }
            },
            self.invocation,
        )

    @property
    def _machines(self) -> Any:
        return self.account.client("stepfunctions")

    def _arn(self, execution: str) -> str:
        return (
            self.account.outputs["StateMachineArn"].replace(":stateMachine:", ":execution:")
            + f":{execution}"
        )


@pytest.fixture
def deploy(account: Account, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Site]:
    def make(**variables: str) -> Site:
        account.deploy(**variables)
        set_variables(monkeypatch, account.variables)
        return Site(account, Invocation())

    return make


@pytest.fixture
def site(deploy: Callable[..., Site]) -> Site:
    return deploy()


@pytest.fixture
def runs(site: Site) -> DeployedRuns:
    return site.runs


@pytest.fixture
def resources(runs: DeployedRuns) -> None:
    """Let the stack have `RESOURCES`."""
    runs.resources = RESOURCES
