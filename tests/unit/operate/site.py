"""An environment in moto's account; its functions are called in this process, as AWS would."""

import json
import time
from dataclasses import dataclass
from typing import Any

from s3unzip.aws import extract, intake, plan, settle
from s3unzip.operate.runs import DeployedRuns
from s3unzip.run_ids import execution_name
from s3unzip.stores.config import StoreConfig
from tests.support.account import Account
from tests.support.contexts import Invocation
from tests.support.zips import Entry, build

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
        self.take(json.dumps(event))
        new = set(self.account.executions()) - before
        return self.runs.find(new.pop()) if new else ""

    def take(self, *bodies: str) -> None:
        """Call the intake function with messages, or with those that are queued."""
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
        assert intake.handler({"Records": records}, self.invocation)["batchItemFailures"] == []

    def work(self, run: str, number: int = 1) -> None:
        suffix = f"-r{number}" if number > 1 else ""
        step = self.given(execution_name(run) + suffix)
        if "next" not in step:
            step = plan.handler(step, self.invocation)
        while step["next"] != "done":
            for task in self.tasks(step):
                extract.handler({"run": run, "task": task}, self.invocation)
            step = settle.handler(step, self.invocation)
        self.end(execution_name(run) + suffix)

    def tasks(self, step: dict[str, Any]) -> list[dict[str, Any]]:
        if step["next"] == "few":
            tasks: list[dict[str, Any]] = step["tasks"]
            return tasks
        body = self.account.objects("work", step["list"])[step["list"]]
        return [json.loads(line) for line in body.splitlines()]

    def given(self, execution: str) -> dict[str, Any]:
        client = self.account.client("stepfunctions")
        found = client.describe_execution(executionArn=self._arn(execution))
        given: dict[str, Any] = json.loads(found["input"])
        return given

    def end(self, execution: str) -> None:
        self.account.client("stepfunctions").stop_execution(executionArn=self._arn(execution))

    def fail(self, run: str, number: int = 1) -> None:
        """Let an execution of a run fail, and take the news of it."""
        name = execution_name(run) + (f"-r{number}" if number > 1 else "")
        self.end(name)
        client = self.account.client("stepfunctions")
        execution = client.describe_execution(executionArn=self._arn(name))
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

    def _arn(self, execution: str) -> str:
        machine = self.account.outputs["StateMachineArn"]
        return f"{machine.replace(':stateMachine:', ':execution:')}:{execution}"
