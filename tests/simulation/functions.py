"""Lambda: the real handlers, invoked, killed at their limit, crashed, and answered or not."""

import json
from collections.abc import Callable
from typing import Any

from s3unzip.aws import extract, intake, plan, settle
from tests.simulation.faults import Fault
from tests.simulation.promises import ViolationError
from tests.simulation.scheduler import Process, Scheduler
from tests.simulation.threads import Event
from tests.simulation.world import World
from tests.unit.aws.contexts import Invocation

Json = dict[str, Any]


# Each function's handler and its time limit, as the stack has them.
FUNCTIONS: dict[str, tuple[Callable[[Any, Any], Any], float]] = {
    "intake": (intake.handler, 60.0),
    "plan": (plan.handler, 300.0),
    "extract": (extract.handler, 180.0),
    "settle": (settle.handler, 300.0),
}


class NamedError(Exception):
    """What an invocation failed with, under the name that Retry and Catch match."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class Limited(Invocation):
    """The context object of an invocation that begins now."""

    def __init__(self, scheduler: Scheduler, seconds: float) -> None:
        super().__init__(seconds)
        self._scheduler = scheduler
        self.until = scheduler.now + seconds

    def get_remaining_time_in_millis(self) -> int:  # type: ignore[override]  # Lambda's is a method
        """Return the milliseconds until Lambda kills the function."""
        return int((self.until - self._scheduler.now) * 1_000)


class Invoked:
    """One invocation that goes on, whether anybody waits for it or not."""

    def __init__(self, world: World, name: str, event: Json) -> None:
        self._world = world
        self._event = json.loads(json.dumps(event))
        self._handler, seconds = FUNCTIONS[name]
        self._ended = Event()
        self._answer: Json | None = None
        self._error = "Runtime.ExitError"  # of a process that died
        task = event.get("task")
        self._attempt = task and world.promises.task_begun(event["run"], task["id"])
        self._process = Process(name, self._attempt)
        self._context = Limited(world.scheduler, seconds)
        world.scheduler.spawn(self._process, self._work)
        world.scheduler.spawn(Process(f"{name} limit"), self._reap)

    def wait(self) -> Json:
        """Return the answer; a `NamedError` says that the function failed."""
        self._ended.wait()
        if self._answer is None:
            raise NamedError(self._error)
        return self._answer

    def _work(self) -> None:
        try:
            answer = self._handler(self._event, self._context)
            self._answer = json.loads(json.dumps(answer))
        except Exception as error:  # noqa: BLE001 - as Lambda's runtime does
            self._error = type(error).__name__
            self._world.note(f"ends with {error!r}")
            if self._attempt is not None:
                self._world.promises.task_failed(self._attempt, self._error)
            self._world.scheduler.ended = isinstance(error, ViolationError)
        finally:
            self._ended.set()

    def _reap(self) -> None:
        """Kill the process at its limit; a crashed one is seen as ended."""
        world = self._world
        self._ended.wait(self._context.until - world.scheduler.now)
        if not self._ended.is_set():
            self._error = "Sandbox.Timedout"
            world.note(f"{self._process.name}: killed at its limit")
            if not any(one.startswith(Fault.DELAY) for one in world.faults.injected):
                world.promises.killed_at_limit(self._process.name)
            world.scheduler.kill(self._process)
            self._ended.set()


def invoke(world: World, name: str, event: Json) -> Json:
    """Invoke a function and return its answer."""
    if world.faults.injects(Fault.BUSY, name):
        raise NamedError("Lambda.TooManyRequestsException")
    invoked = Invoked(world, name, event)
    if world.faults.injects(Fault.LOSE, f"the answer of {name}"):
        world.scheduler.sleep(world.faults.rng.choice((0.0, 0.01, 20.0)))
        raise NamedError("Lambda.SdkClientException")
    return invoked.wait()
