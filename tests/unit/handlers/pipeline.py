"""The functions in this process, called with the events that AWS would send them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from s3unzip.handlers import extract, link, plan, planner, report

from s3unzip.aws.environment import open_worker
from tests.zips import DEFLATE, Entry, build

if TYPE_CHECKING:
    from s3unzip.stores.ports import RunStore
    from tests.account import Account
    from tests.unit.aws.contexts import Invocation

MEMBERS = {f"d/f{n}.txt": b"%d" % n * 100 for n in range(20)}


def archive(*more: Entry) -> bytes:
    """Return an archive of MEMBERS, and more of them."""
    return build(*(Entry(name, body, DEFLATE) for name, body in MEMBERS.items()), *more)


def object_created(key: str, bucket: str = "arrivals") -> dict[str, Any]:
    """Return EventBridge's event of an object that was put.

    https://docs.aws.amazon.com/AmazonS3/latest/userguide/ev-events.html
    """
    return {
        "version": "0",
        "id": "17793124-05d4-b198-2fde-7ededc63b103",
        "detail-type": "Object Created",
        "source": "aws.s3",
        "account": "123456789012",
        "time": "2026-01-01T00:00:01Z",
        "region": "us-east-1",
        "resources": [f"arn:aws:s3:::{bucket}"],
        "detail": {
            "version": "0",
            "bucket": {"name": bucket},
            "object": {"key": key, "size": 5, "etag": "b1946ac92492d2347c6235b4d2611184"},
            "request-id": "N4N7GDK58NMKJ12R",
            "requester": "123456789012",
            "source-ip-address": "1.2.3.4",
            "reason": "PutObject",
        },
    }


@dataclass(slots=True)
class Functions:
    """The functions of a deployed account."""

    account: Account
    invocation: Invocation
    planned: dict[str, dict[str, Any]] = field(default_factory=dict)  # by run: planner's answers

    def plan(self, *bodies: object) -> list[str]:
        """Queue messages, and call the plan function with them; return those that failed."""
        sqs, url = self.account.client("sqs"), self.account.variables["S3UNZIP_QUEUE_URL"]
        for body in bodies:
            text = body if isinstance(body, str) else json.dumps(body)
            sqs.send_message(QueueUrl=url, MessageBody=text)
        answer = sqs.receive_message(
            QueueUrl=url, MaxNumberOfMessages=10, AttributeNames=["All"], VisibilityTimeout=600
        )
        records = [_record(message) for message in answer.get("Messages", [])]
        assert len(records) >= len(bodies)
        failed = plan.handler({"Records": records}, self.invocation)["batchItemFailures"]
        ids = {one["itemIdentifier"] for one in failed}
        return [record["body"] for record in records if record["messageId"] in ids]

    def run_store(self, run: str) -> RunStore:
        """Return a run's records."""
        return open_worker().stores.run_store(run)

    def told(self, run: str) -> dict[str, Any]:
        """Return the input of a run's execution."""
        machine = self.account.outputs["StateMachineArn"]
        execution = f"{machine.replace(':stateMachine:', ':execution:')}:{run}"
        found = self.account.client("stepfunctions").describe_execution(executionArn=execution)
        told: dict[str, Any] = json.loads(found["input"])
        return self.planned.get(run, told)

    def plan_run(self, run: str) -> dict[str, Any]:
        """Call the planner as the first state of an execution does; what it says is told then."""
        event = {"request": self.told(run)["request"], "run": run}
        answer: dict[str, Any] = planner.handler(event, self.invocation)
        if not answer["refused"]:
            self.planned[run] = answer
        return answer

    def lines(self, key: str) -> list[dict[str, Any]]:
        """Return the items that a Map reads: the lines of an object of the work bucket."""
        body = self.account.client("s3").get_object(Bucket="work", Key=key)["Body"].read()
        return [json.loads(line) for line in body.splitlines()]

    def extract(self, run: str, name: str | None = None, **more: object) -> list[dict[str, Any]]:
        """Do what the Map over a list of tasks does, or both Maps of a run; return the answers."""
        told = self.told(run)
        all_names = ["whole", "slices"] if told["split_members"] else ["whole"]
        return [
            extract.handler({"run": told["run"], "task": task, **more}, self.invocation)
            for each in (all_names if name is None else [name])
            for task in self.lines(told["work"][each])
        ]

    def scan(self, run: str) -> list[dict[str, Any]]:
        """Do what the Map over the scans does; return the answers."""
        told = self.told(run)
        return [
            extract.handler({"run": told["run"], "scan": one}, self.invocation)
            for one in self.lines(told["work"]["scan"])
        ]

    def link(self, run: str, **more: object) -> dict[str, Any]:
        """Call the link function as its state does."""
        answer: dict[str, Any] = link.handler(
            {"run": self.told(run)["run"], **more}, self.invocation
        )
        return answer

    def report(self, run: str, **more: object) -> dict[str, Any]:
        """Call the report function as its state does."""
        answer: dict[str, Any] = report.handler(
            {"run": self.told(run)["run"], **more}, self.invocation
        )
        return answer

    def report_failure(self, execution: str, status: str = "FAILED") -> dict[str, Any]:
        """Call the report function as EventBridge does after an execution failed.

        https://docs.aws.amazon.com/step-functions/latest/dg/eventbridge-integration.html
        """
        detail = {"name": execution, "status": status, "startDate": 1, "stopDate": 2}
        event = {"source": "aws.states", "detail-type": "Step Functions Execution Status Change"}
        answer: dict[str, Any] = report.handler({**event, "detail": detail}, self.invocation)
        return answer


def _record(message: dict[str, Any]) -> dict[str, Any]:
    return {
        "messageId": message["MessageId"],
        "receiptHandle": message["ReceiptHandle"],
        "body": message["Body"],
        "attributes": message["Attributes"],
        "messageAttributes": {},
        "eventSource": "aws:sqs",
        "eventSourceARN": "arn:aws:sqs:us-east-1:123456789012:intake",
        "awsRegion": "us-east-1",
    }
