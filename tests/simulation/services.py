"""SQS, EventBridge and the clients that the functions have of them and of Step Functions.

Clients of boto3 retry by themselves, so that a service's passing faults are not seen here; what is
seen is that calls take effect late, twice, or without an answer.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError, ConnectionClosedError

from s3unzip.aws.events import RECHECK
from tests.simulation.faults import Fault
from tests.simulation.functions import NamedError, invoke
from tests.simulation.machine import MACHINE, StateMachine
from tests.simulation.scheduler import Process, ProcessDiedError
from tests.simulation.threads import Waiters

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.world import World

Json = dict[str, Any]
VISIBILITY = 1_800.0  # seconds that a received message is hidden: six times the plan's limit
ATTEMPTS = 5  # before a message is a dead letter
REPORT_ATTEMPTS = 3  # of an event that Lambda takes asynchronously


class TakenError(Exception):
    """ExecutionAlreadyExists."""


class UnknownError(Exception):
    """ExecutionDoesNotExist."""


class NotRedrivableError(ClientError):
    """ExecutionNotRedrivable."""

    def __init__(self) -> None:
        super().__init__({"Error": {"Message": "it did not fail"}}, "RedriveExecution")


@dataclass(slots=True)
class Message:
    """One message of the queue."""

    id: str
    body: str
    visible: float  # when it can be received
    changed: Waiters  # woken when `visible` or `deleted` changes
    receipt: str = ""
    deleted: bool = False

    def hide_until(self, time: float) -> None:
        """Let it be received again at `time`."""
        self.visible = time
        self.changed.wake()


class Services:
    """What delivers and answers between the functions."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.machine = StateMachine(world)
        self.dead_letters: list[str] = []
        self.undelivered: list[Json] = []  # failures that the report function did not take
        self._messages: list[Message] = []
        self._numbers = itertools.count(1)

    # SQS

    def send(self, body: str, delay: float = 0.0) -> None:
        """Put a message into the queue after a delay, maybe twice, maybe late."""
        world = self.world
        for _ in range(2 if world.faults.injects(Fault.TWICE, "message") else 1):
            late = world.faults.delay() if world.faults.injects(Fault.DELAY, "message") else 0.0
            changed = Waiters(world.scheduler)
            message = Message(
                f"message-{next(self._numbers)}", body, world.scheduler.now + late + delay, changed
            )
            self._messages.append(message)
            world.scheduler.spawn(Process("queue"), partial(self._serve, message))

    def _serve(self, message: Message) -> None:
        """Hand a message to the plan function until it is deleted or was handed over too often."""
        scheduler = self.world.scheduler
        for attempt in itertools.count(1):
            while scheduler.now < message.visible and not message.deleted:
                message.changed.wait(message.visible - scheduler.now)
            if message.deleted:
                return
            if attempt > ATTEMPTS:
                self.dead_letters.append(message.body)
                return
            message.receipt = f"receipt-{next(self._numbers)}"
            message.visible = scheduler.now + VISIBILITY
            faults = self.world.faults
            counts = [attempt]
            if faults.overlaps and faults.injects(Fault.TWICE, "delivery"):
                counts.append(attempt + faults.rng.choice((0, 1)))  # "approximate"
            for one in counts:
                process = Process("event source")
                scheduler.spawn(process, partial(self._deliver, message, one))

    def _deliver(self, message: Message, attempt: int) -> None:
        receipt = message.receipt
        record = {
            "messageId": message.id,
            "receiptHandle": receipt,
            "body": message.body,
            "attributes": {"ApproximateReceiveCount": str(attempt)},
        }
        try:
            answer = invoke(self.world, "plan", {"Records": [record]})
        except NamedError as error:
            if error.name == "Lambda.TooManyRequestsException":
                message.hide_until(self.world.scheduler.now + 10)
            return
        lost = self.world.faults.injects(Fault.TWICE, "delete message")
        if not answer["batchItemFailures"] and not lost:
            message.deleted = True
            message.changed.wake()

    def hide(self, receipt: str, seconds: float) -> None:
        """Change a message's visibility, if the receipt is its last one."""
        for message in self._messages:
            if message.receipt == receipt:
                message.hide_until(self.world.scheduler.now + seconds)

    # EventBridge

    def announce(self, title: str, detail: Json) -> None:
        """Take the event of a run."""
        self.world.note(f"event {title}: {detail['verdict']}")
        self.world.model.announced(title, detail)

    def watch(self, name: str) -> None:
        """Tell the report function when an execution fails, at least once."""
        world = self.world
        execution = self.machine.executions[name]
        redrives = execution.redrives

        def follow() -> None:
            execution.over.wait()
            if execution.status != "SUCCEEDED":
                told = json.dumps(execution.told)
                detail = {
                    "name": name,
                    "stateMachineArn": MACHINE,
                    "status": execution.status,
                    "redriveCount": redrives,
                    "input": told,
                }
                for _ in range(2 if world.faults.injects(Fault.TWICE, "failure") else 1):
                    self.tell_failure({"detail": detail})

        world.scheduler.spawn(Process("event bus"), follow)

    def redrive(self, name: str) -> None:
        """Let an execution that ended early go on."""
        self.machine.executions[name].redrive()
        self.watch(name)

    def tell_failure(self, event: Json) -> None:
        """Invoke the report function with a failure until it takes it, or give up."""
        world = self.world

        def deliver() -> None:
            if world.faults.injects(Fault.DELAY, "failure"):
                world.scheduler.sleep(world.faults.delay())
            for _ in range(REPORT_ATTEMPTS):
                try:
                    invoke(world, "report", event)
                except NamedError:
                    world.scheduler.sleep(60.0)
                else:
                    return
            self.undelivered.append(event)

        world.scheduler.spawn(Process("event bus"), deliver)

    # What boto3 gives the functions

    def client(self, service: str, config: object = None, **more: object) -> Any:
        """Return the client of a service, as far as the functions use it."""
        match service:
            case "sqs":
                return SimpleNamespace(
                    change_message_visibility_batch=self._change_visibility,
                    send_message=self._send_message,
                )
            case "stepfunctions":
                return SimpleNamespace(
                    start_execution=self._start_execution,
                    describe_execution=self._describe_execution,
                    redrive_execution=self._redrive_execution,
                    stop_execution=self._stop_execution,
                    # The schedules' Maps have no Map Runs to change.
                    list_map_runs=lambda executionArn: {"mapRuns": []},  # noqa: N803 - likewise
                    exceptions=SimpleNamespace(
                        ExecutionAlreadyExists=TakenError,
                        ExecutionDoesNotExist=UnknownError,
                        ExecutionNotRedrivable=NotRedrivableError,
                    ),
                )
            case "events":
                return SimpleNamespace(
                    put_events=self._put_events, meta=SimpleNamespace(partition="aws")
                )
        raise AssertionError(service)

    def _call(self, name: str, effect: Callable[[], Any]) -> Any:
        """Do one call; its process may die around it, or its answer be lost."""
        world, scheduler = self.world, self.world.scheduler
        scheduler.pause()
        for fault in (Fault.CRASH, Fault.CRASH_AFTER):
            value = effect() if fault is Fault.CRASH_AFTER else None
            if world.faults.injects(fault, name):
                world.note(f"{name}: {fault}")
                scheduler.kill(scheduler.current().process)
                raise ProcessDiedError
        world.note(name)
        if world.faults.injects(Fault.LOSE, name):
            world.note(f"{name}: its answer is lost")
            raise ConnectionClosedError(endpoint_url="https://service")
        scheduler.pause()
        return value

    def _send_message(self, QueueUrl: str, MessageBody: str, DelaySeconds: int = 0) -> Any:  # noqa: N803 - boto3's
        # The delay of a reminder is not simulated: it comes at some time.
        delay = DelaySeconds if RECHECK in MessageBody else 0
        return self._call("send message", lambda: self.send(MessageBody, delay))

    def _change_visibility(self, QueueUrl: str, Entries: list[Json]) -> Json:  # noqa: N803 - boto3's
        def effect() -> Json:
            for entry in Entries:
                self.hide(entry["ReceiptHandle"], entry["VisibilityTimeout"])
            return {}

        answer: Json = self._call("change visibility", effect)
        return answer

    def _start_execution(self, stateMachineArn: str, name: str, input: str) -> None:  # noqa: A002, N803 - boto3's
        def effect() -> bool:
            started = self.machine.start(name, json.loads(input))
            if started:
                self.watch(name)
            return started

        if not self._call(f"start {name}", effect):
            raise TakenError

    def _describe_execution(self, executionArn: str) -> Json:  # noqa: N803 - boto3's
        name = executionArn.rpartition(":")[2]
        found = self._call(f"describe {name}", lambda: self.machine.executions.get(name))
        if found is None:
            raise UnknownError
        return {"status": found.status, "redriveCount": found.redrives}

    def _redrive_execution(self, executionArn: str) -> None:  # noqa: N803 - boto3's
        name = executionArn.rpartition(":")[2]

        def effect() -> bool:
            ended_early = self.machine.executions[name].status in {"FAILED", "ABORTED"}
            if ended_early:
                self.redrive(name)
            return ended_early

        if not self._call(f"redrive {name}", effect):
            raise NotRedrivableError

    def _stop_execution(self, executionArn: str, cause: str) -> None:  # noqa: N803 - boto3's
        name = executionArn.rpartition(":")[2]

        def effect() -> None:
            execution = self.machine.executions[name]
            if execution.status == "RUNNING":
                execution.stop()

        self._call(f"stop {name}", effect)

    def _put_events(self, Entries: list[Json]) -> Json:  # noqa: N803 - boto3's
        def effect() -> Json:
            for entry in Entries:
                self.announce(entry["DetailType"], json.loads(entry["Detail"]))
            return {"FailedEntryCount": 0}

        answer: Json = self._call("put events", effect)
        return answer
