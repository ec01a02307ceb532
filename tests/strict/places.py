"""Small functions, queues and roles in an embedded AWS, for the tests of its rules."""

from __future__ import annotations

import io
import itertools
import json
import time
import zipfile
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from embedded.deploy import make_client
from tests.patience import HANG_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from embedded.ministack import EmbeddedAws

ROLE = "arn:aws:iam::000000000000:role/anybody"
_NUMBERS = itertools.count()


@dataclass(slots=True)
class Place:
    """One running embedded AWS: its clients, and short ways to make things in it."""

    aws: EmbeddedAws
    _clients: dict[str, Any] = field(default_factory=dict)

    def client(self, service: str) -> Any:
        """Return the boto3 client of a service."""
        if service not in self._clients:
            self._clients[service] = make_client(service, self.aws.environment)
        return self._clients[service]

    def function(self, source: str, **settings: Any) -> str:
        """Make a function of one module whose handler is ``handler``; return its name."""
        name = f"function-{next(_NUMBERS)}"
        defaults = {"Role": ROLE, "Runtime": "python3.13", "Handler": "index.handler"}
        self.client("lambda").create_function(
            FunctionName=name, Code={"ZipFile": zipped(source)}, **(defaults | settings)
        )
        return name

    def invoke(self, function: str, event: Any = None, **settings: Any) -> Answer:
        """Invoke a function synchronously."""
        body = json.dumps(event).encode()
        got = self.client("lambda").invoke(FunctionName=function, Payload=body, **settings)
        payload = got["Payload"].read()
        return Answer(got.get("FunctionError"), json.loads(payload) if payload else None)

    def queue(self, **attributes: str) -> Queue:
        """Make a queue with the attributes given."""
        sqs = self.client("sqs")
        url = sqs.create_queue(QueueName=f"queue-{next(_NUMBERS)}", Attributes=attributes)
        address: str = url["QueueUrl"]
        found = sqs.get_queue_attributes(QueueUrl=address, AttributeNames=["QueueArn"])
        return Queue(sqs, address, found["Attributes"]["QueueArn"])

    def function_arn(self, name: str) -> str:
        """Return the ARN of a function."""
        found: str = self.client("lambda").get_function(FunctionName=name)["Configuration"][
            "FunctionArn"
        ]
        return found


@dataclass(frozen=True, slots=True)
class Answer:
    """What an invocation gave: the kind of its error, None where there is none, and its payload."""

    error: str | None
    payload: Any


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue and how to look into it."""

    sqs: Any
    url: str
    arn: str

    def send(self, body: str) -> None:
        """Send one message."""
        self.sqs.send_message(QueueUrl=self.url, MessageBody=body)

    def receive(self, wait: int = 0) -> list[Mapping[str, Any]]:
        """Receive up to ten messages with all their attributes."""
        got = self.sqs.receive_message(
            QueueUrl=self.url,
            MaxNumberOfMessages=10,
            WaitTimeSeconds=wait,
            AttributeNames=["All"],
            MessageAttributeNames=["All"],
        )
        messages: list[Mapping[str, Any]] = got.get("Messages", [])
        return messages

    def count(self) -> int:
        """Return how many messages it holds, in flight or not."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        got = self.sqs.get_queue_attributes(QueueUrl=self.url, AttributeNames=names)
        return sum(int(got["Attributes"][name]) for name in names)


def zipped(source: str) -> bytes:
    """Return an asset of one module, index.py."""
    body = io.BytesIO()
    with zipfile.ZipFile(body, "w") as archive:
        archive.writestr("index.py", source)
    return body.getvalue()


def until(holds: Callable[[], Any], what: str, seconds: float = HANG_SECONDS) -> Any:
    """Return what `holds` gives once it is true; fail with `what` when it never is."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = holds()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError(f"not in {seconds:.0f} s: {what}")
