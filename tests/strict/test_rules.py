"""The rules of the embedded AWS, by state machines that need no function."""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from embedded import deploy, ministack
from infra.workflow import INLINE_WAITS
from tests.simulation.services import DEFINITION
from tests.support import servers, zips

ROLE = "arn:aws:iam::000000000000:role/any"
LARGE = "x" * 262_144
PASS = {"Type": "Pass", "End": True}
PLAN_AND_SETTLES = 7_000  # events: tests/infra/test_dashboard.py counts them


class Account:
    """Step Functions, Lambda, SQS and S3 of one embedded AWS."""

    def __init__(self, aws: ministack.EmbeddedAws) -> None:
        self.states = deploy.make_client("stepfunctions", aws.environment)
        self.s3 = deploy.make_client("s3", aws.environment)
        self.functions = deploy.make_client("lambda", aws.environment)
        self.queues = deploy.make_client("sqs", aws.environment)
        self._machines = 0

    def make(self, **states: dict[str, Any]) -> str:
        self._machines += 1
        definition = json.dumps({"StartAt": next(iter(states)), "States": states})
        made = self.states.create_state_machine(
            name=f"machine-{self._machines}", definition=definition, roleArn=ROLE
        )
        return str(made["stateMachineArn"])

    def make_function(self, name: str, code: bytes, *, at_once: int) -> str:
        function = self.functions.create_function(
            FunctionName=name,
            Runtime="python3.13",
            Role=ROLE,
            Handler="code.handler",
            Code={"ZipFile": zips.build(zips.Entry("code.py", code))},
            Timeout=5,
        )
        reserve = self.functions.put_function_concurrency
        reserve(FunctionName=name, ReservedConcurrentExecutions=at_once)
        return str(function["FunctionArn"])

    def make_queue(self, name: str, **attributes: str) -> str:
        return str(self.queues.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"])

    def arn_of(self, queue: str) -> str:
        return self._attribute(queue, "QueueArn")

    def count(self, queue: str) -> int:
        return int(self._attribute(queue, "ApproximateNumberOfMessages")) + int(
            self._attribute(queue, "ApproximateNumberOfMessagesNotVisible")
        )

    def _attribute(self, queue: str, name: str) -> str:
        answer = self.queues.get_queue_attributes(QueueUrl=queue, AttributeNames=[name])
        return str(answer["Attributes"][name])

    def run(self, machine: str, given: object = None, **named: str) -> dict[str, Any]:
        started = self.states.start_execution(
            stateMachineArn=machine, input=json.dumps({} if given is None else given), **named
        )
        for _ in servers.looks():
            found = self.states.describe_execution(executionArn=started["executionArn"])
            if found["status"] != "RUNNING":
                return dict(found)
        raise AssertionError(started)


@pytest.fixture(scope="module")
def account() -> Iterator[Account]:
    """An account in which hours before a retry are less than a second."""
    with servers.make_embedded_aws(variables={"SFN_WAIT_SCALE": "0.0001"}) as running:
        yield Account(running)


def test_payloads_are_bounded(account: Account) -> None:
    """A state's output of 256 KiB and more fails the execution, and States.ALL does not help."""
    half = LARGE[: len(LARGE) // 2]
    doubled = {"Type": "Pass", "Parameters": {"a.$": "$.a", "b.$": "$.a"}, "End": True}
    ended = account.run(account.make(Double=doubled), {"a": half})
    assert (ended["status"], ended["error"]) == ("FAILED", "States.DataLimitExceeded")
    assert account.run(account.make(Double=doubled), {"a": half[:-99]})["status"] == "SUCCEEDED"
    with pytest.raises(account.states.exceptions.ClientError, match="length less than or equal"):
        account.run(account.make(Same=PASS), {"a": LARGE})


def map_over(account: Account, key: str, **more: object) -> dict[str, Any]:
    """Return a Distributed Map over the lines of an object; a child fails where its item is odd."""
    account.s3.create_bucket(Bucket="lists")
    lines = "".join(json.dumps({"n": n, "odd": n % 2}) + "\n" for n in range(6))
    account.s3.put_object(Bucket="lists", Key=key, Body=lines.encode())
    choice = {"Variable": "$.odd", "NumericEquals": 1, "Next": "Bad"}
    return {
        "Type": "Map",
        "ItemReader": {
            "Resource": "arn:aws:states:::s3:getObject",
            "ReaderConfig": {"InputType": "JSONL"},
            "Parameters": {"Bucket": "lists", "Key.$": "$.key"},
        },
        "MaxConcurrencyPath": "$.workers",
        "ItemProcessor": {
            "ProcessorConfig": {"Mode": "DISTRIBUTED", "ExecutionType": "STANDARD"},
            "StartAt": "Odd?",
            "States": {
                "Odd?": {"Type": "Choice", "Choices": [choice], "Default": "Good"},
                "Good": PASS,
                "Bad": {"Type": "Fail", "Error": "Odd"},
            },
        },
        "End": True,
        **more,
    }


def test_failures_of_children(account: Account) -> None:
    """Those that are tolerated are in the files of the ResultWriter; any more fails the Map."""
    writer = {
        "Resource": "arn:aws:states:::s3:putObject",
        "Parameters": {"Bucket": "lists", "Prefix.$": "States.Format('{}-result', $.key)"},
        "WriterConfig": {"OutputType": "JSONL", "Transformation": "COMPACT"},
    }
    given = {"key": "six.jsonl", "workers": 2}
    few = map_over(account, "six.jsonl", ToleratedFailurePercentage=40, ResultWriter=writer)
    ended = account.run(account.make(Map=few), given)
    assert ended["error"] == "States.ExceedToleratedFailureThreshold"
    ended = account.run(
        account.make(Map=(few | {"ToleratedFailurePercentage": 100, "ResultPath": None})), given
    )
    assert (ended["status"], json.loads(ended["output"])) == ("SUCCEEDED", given)
    (run,) = account.states.list_map_runs(executionArn=ended["executionArn"])["mapRuns"]
    told = account.states.describe_map_run(mapRunArn=run["mapRunArn"])
    assert (told["maxConcurrency"], told["itemCounts"]["failed"]) == (2, 3)
    listed = account.s3.list_objects_v2(Bucket="lists", Prefix="six.jsonl-result/")["Contents"]
    folder = run["mapRunArn"].rsplit(":", 1)[1]
    assert {"manifest.json", "SUCCEEDED_0.jsonl", "FAILED_0.jsonl"} <= {
        one["Key"].partition(f"/{folder}/")[2] for one in listed
    }


def test_what_a_map_returns_is_bounded_without_a_writer(account: Account) -> None:
    """Null for ResultPath does not help."""
    state = map_over(account, "large.jsonl", ToleratedFailurePercentage=100, ResultPath=None)
    state["ItemProcessor"]["States"]["Good"] = {
        "Type": "Pass",
        "Result": LARGE[:99_000],
        "End": True,
    }
    ended = account.run(account.make(Map=state), {"key": "large.jsonl", "workers": 1})
    assert ended["error"] == "States.DataLimitExceeded"


def test_a_list_that_is_not_there(account: Account) -> None:
    """The Map fails by the name that AWS gives to it."""
    ended = account.run(
        account.make(Map=map_over(account, "here.jsonl", ToleratedFailurePercentage=100)),
        {"key": "elsewhere.jsonl", "workers": 1},
    )
    assert (ended["status"], ended["error"]) == ("FAILED", "States.ItemReaderFailed")


def test_names_of_executions(account: Account) -> None:
    """One is at work by its name and input; another input, or its end, makes the name known."""
    wait = {"Type": "Wait", "Seconds": 6_000_000, "Next": "End"}  # until it is stopped
    machine = account.make(Wait=wait, End=PASS)
    states = account.states
    once = states.start_execution(stateMachineArn=machine, name="same", input="{}")
    again = states.start_execution(stateMachineArn=machine, name="same", input="{}")
    assert again["executionArn"] == once["executionArn"]
    for given in ('{"a": 1}', "{}"):
        with pytest.raises(states.exceptions.ExecutionAlreadyExists):
            states.start_execution(stateMachineArn=machine, name="same", input=given)
        states.stop_execution(executionArn=once["executionArn"])
    for name in ("a/b", "n" * 81, "no name"):
        with pytest.raises(states.exceptions.InvalidName):
            states.start_execution(stateMachineArn=machine, name=name, input="{}")
    assert account.run(account.make(Same=PASS), name="n" * 80)["status"] == "SUCCEEDED"


def test_histories_are_bounded(account: Account) -> None:
    """The event 25,000 of an execution is its failure, and States.ALL does not catch it."""
    again = {"Variable": "$", "IsPresent": True, "Next": "Loop"}
    ended = account.run(account.make(Loop={"Type": "Choice", "Choices": [again]}))
    assert (ended["status"], ended["error"]) == ("FAILED", "States.Runtime")
    assert "25000" in ended["cause"]
    newest = account.states.get_execution_history(
        executionArn=ended["executionArn"], reverseOrder=True, maxResults=1
    )
    assert newest["events"][0]["id"] == 25_000


@pytest.mark.parametrize("limit", [None, 2])
def test_a_throttled_message_counts_as_received(account: Account, limit: int | None) -> None:
    """A function that may do less than its event source polls for loses healthy messages."""
    name = f"limit-{limit}"
    function = account.make_function(
        name, b"import time\ndef handler(*_):\n    time.sleep(1)\n    return {}\n", at_once=2
    )
    dead = account.make_queue(f"{name}-dead")
    redrive = json.dumps({"deadLetterTargetArn": account.arn_of(dead), "maxReceiveCount": 1})
    visible = "6" if limit is None else "600"  # a busy machine loses none that is not throttled
    queue = account.make_queue(name, VisibilityTimeout=visible, RedrivePolicy=redrive)
    for _ in range(8):
        account.queues.send_message(QueueUrl=queue, MessageBody="{}")
    scaling = {} if limit is None else {"ScalingConfig": {"MaximumConcurrency": limit}}
    account.functions.create_event_source_mapping(
        FunctionName=function, EventSourceArn=account.arn_of(queue), BatchSize=1, **scaling
    )
    for _ in servers.looks():
        if account.count(queue) == 0:
            break
    assert (account.count(queue), account.count(dead) > 0) == (0, limit is None)


def test_rounds_without_a_free_worker_fit_into_a_history(account: Account) -> None:
    """Two rounds of the shipped inline Map, whose 40 tasks are all refused, to the last retry."""
    function = account.make_function("full", b"", at_once=0)
    few = json.loads(DEFINITION.read_text())["States"]["Few tasks"]
    few["ItemProcessor"]["States"]["Extract"]["Parameters"]["FunctionName"] = function
    rounds = {"First": few | {"Next": "Second"}, "Second": few | {"Next": "End"}, "End": PASS}
    given = {"run": "r", "workers": 40, "tasks": [{"id": str(n)} for n in range(40)]}
    ended = account.run(account.make(**rounds), given)
    assert ended["status"] == "SUCCEEDED"
    pages = account.states.get_paginator("get_execution_history").paginate(
        executionArn=ended["executionArn"]
    )
    kinds = Counter(event["type"] for page in pages for event in page["events"])
    assert kinds["TaskFailed"] == 2 * 40 * (1 + INLINE_WAITS)
    assert kinds.total() + PLAN_AND_SETTLES < 25_000
