"""Lambda: the real handlers, invoked, killed at their limit, crashed, and answered or not."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from s3unzip.handlers import extract, link, plan, planner, report

from tests.model.facts import ViolationError
from tests.simulation.faults import Fault
from tests.simulation.scheduler import Process
from tests.simulation.threads import Event
from tests.simulation.world import Function
from tests.unit.aws.contexts import Invocation

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.scheduler import Scheduler
    from tests.simulation.world import World

Json = dict[str, Any]
EVENT_SECONDS = 60.0  # maximum age of an event in Lambda's queue, as the stack sets it


@dataclass(frozen=True, slots=True)
class Deployed:
    """One function as the stack has it."""

    handler: Callable[[Any, Any], Any]
    seconds: float  # its time limit


FUNCTIONS = {
    "plan": Deployed(plan.handler, 60.0),
    "planner": Deployed(planner.handler, 300.0),
    "link": Deployed(link.handler, 300.0),
    "extract": Deployed(extract.handler, 180.0),
    "report": Deployed(report.handler, 300.0),
}


class NamedError(Exception):
    """What an invocation failed with, under the name that Retry and Catch match."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class Limited(Invocation):
    """The context object of an invocation that began at `began`."""

    def __init__(self, scheduler: Scheduler, seconds: float) -> None:
        super().__init__(seconds)
        self._scheduler = scheduler
        self._until = scheduler.now + seconds

    def get_remaining_time_in_millis(self) -> int:  # type: ignore[override]  # Lambda's is a method
        """Return the milliseconds until Lambda kills the function."""
        return int((self._until - self._scheduler.now) * 1_000)


class Invoked:
    """One invocation that goes on, whether anybody waits for it or not."""

    def __init__(self, world: World, name: str, event: Json) -> None:
        self._world = world
        self._scheduler = world.scheduler
        self._event = json.loads(json.dumps(event))
        self._deployed = FUNCTIONS[name]
        self._ended = Event(world.scheduler)
        self._answer: Json | None = None
        self._error = "Runtime.ExitError"  # of a process that died
        self._limit = self._deployed.seconds
        self.process = Function(name)
        task = event.get("task")
        if task is not None:
            self.process.attempt = world.model.task_begun(event["run"]["id"], task["id"])
        self._context = Limited(world.scheduler, self._limit)
        self._until = world.scheduler.now + self._limit
        world.scheduler.spawn(self.process, self._work)
        self._reaper = Function(f"{name} limit")
        world.scheduler.spawn(self._reaper, self._reap)

    def wait(self, seconds: float) -> Json:
        """Return the answer.

        Raises:
            NamedError: the function failed, or there is no answer after so many seconds.
        """
        self._ended.wait(seconds)
        if not self._ended.is_set():
            raise NamedError("States.Timeout")
        if self._answer is None:
            raise NamedError(self._error)
        return self._answer

    def _work(self) -> None:
        try:
            answer = self._deployed.handler(self._event, self._context)
            self._answer = json.loads(json.dumps(answer))
        except Exception as error:  # noqa: BLE001 - as Lambda's runtime does
            self._error = type(error).__name__
            self._world.note(f"ends with {error!r}")
            if self.process.attempt is not None:
                self._world.model.task_failed(self.process.attempt, self._error)
            self._scheduler.ended = isinstance(error, ViolationError)
        finally:
            self._ended.set()

    def _reap(self) -> None:
        """Kill the process at its limit; a crashed one is seen as ended."""
        self._ended.wait(self._until - self._scheduler.now)
        if not self._ended.is_set():
            self._error = "Sandbox.Timedout"
            self._world.note(f"{self.process.name}: killed at its limit")
            slow = any(fault.startswith(Fault.DELAY) for fault in self._world.faults.injected)
            if not slow:
                self._world.model.killed_at_limit(self.process.name)
            self._scheduler.kill(self.process)
            self._ended.set()


def invoke(world: World, name: str, event: Json, seconds: float = 900.0) -> Json:
    """Invoke a function and return its answer.

    Raises:
        NamedError: it failed, no worker was free, or its answer was lost and it goes on.
    """
    if seconds <= 0:
        raise NamedError("States.Timeout")
    if world.faults.injects(Fault.BUSY, name):
        raise NamedError("Lambda.TooManyRequestsException")
    invoked = Invoked(world, name, event)
    if world.faults.injects(Fault.LOSE, f"the answer of {name}"):
        world.scheduler.sleep(world.faults.rng.choice((0.0, 0.01, 20.0)))
        raise NamedError("Lambda.SdkClientException")
    return invoked.wait(seconds)


def queue_event(world: World, name: str, event: Json) -> Json:
    """Invoke a function asynchronously: Lambda runs it later, once, whatever comes of it.

    A throttled event is tried again after 1, 2, 4 ... seconds, until it is `EVENT_SECONDS` old.

    Raises:
        NamedError: the answer of Lambda, which has the event, was lost.
    """

    def deliver() -> None:
        queued, wait = world.scheduler.now, 1.0
        while world.scheduler.now - queued < EVENT_SECONDS:
            if not world.faults.injects(Fault.BUSY, name):
                Invoked(world, name, event)
                return
            world.scheduler.sleep(wait)
            wait *= 2

    world.scheduler.spawn(Process(f"queue of {name}"), deliver)
    if world.faults.injects(Fault.LOSE, f"the answer to an event of {name}"):
        raise NamedError("Lambda.SdkClientException")
    return {}


def head_object(world: World, key: str, seconds: float) -> Json:
    """Ask S3 for a record of a run, as a state machine does.

    Raises:
        NamedError: there is none, S3 did not answer, or the caller's time is over.
    """
    if seconds <= 0:
        raise NamedError("States.Timeout")
    if world.faults.injects(Fault.LOSE, "the answer of headObject"):
        raise NamedError("S3.SdkClientException")
    _, run, name = key.split("/")
    if name not in world.records[run]:
        raise NamedError("S3.NoSuchKeyException")
    return {}
