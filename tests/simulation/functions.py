"""Lambda: the real handlers, invoked, killed at their limit, crashed, and answered or not."""

import json
from collections.abc import Callable
from typing import Any

from s3unzip.aws import extract, intake, plan, settle
from tests.simulation.promises import ViolationError
from tests.simulation.scheduler import Process, Scheduler
from tests.simulation.threads import Event
from tests.simulation.world import Fault, World
from tests.support.contexts import Invocation

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
        super().__init__()
        self._scheduler = scheduler
        self.until = scheduler.now + seconds

    def get_remaining_time_in_millis(self) -> int:  # type: ignore[override]  # Lambda's is a method
        return int((self.until - self._scheduler.now) * 1_000)


def invoke(world: World, name: str, event: Json) -> Json:
    """Invoke a function and return its answer; it may go on when nobody waits for it any more."""
    if world.faults.injects(Fault.BUSY, name):
        raise NamedError("Lambda.TooManyRequestsException")
    handler, seconds = FUNCTIONS[name]
    given, task = json.loads(json.dumps(event)), event.get("task")
    attempt = task and world.promises.task_begun(event["run"], task["id"])
    process, context = Process(name, attempt), Limited(world.scheduler, seconds)
    world.invocations[name] += 1
    process.number = world.invocations[name]
    ended, answers, errors = Event(), list[Json](), ["Runtime.ExitError"]  # of one that died

    def work() -> None:
        try:
            answers.append(json.loads(json.dumps(handler(given, context))))
        except Exception as error:  # noqa: BLE001 - as Lambda's runtime does
            errors.append(type(error).__name__)
            world.note(f"ends with {error!r}")
            if attempt is not None:
                world.promises.task_failed(attempt, errors[-1])
            world.scheduler.ended = isinstance(error, ViolationError)
        finally:
            ended.set()

    def reap() -> None:
        """Kill the process at its limit; a crashed one is seen as ended."""
        ended.wait(context.until - world.scheduler.now)
        if not ended.is_set():
            errors.append("Sandbox.Timedout")
            world.note(f"{name}: killed at its limit")
            slow = any(one.startswith(Fault.DELAY) for one in world.faults.injected)
            world.promises.must(slow, "near its limit a worker stops", name)
            world.scheduler.kill(process)
            ended.set()

    world.scheduler.spawn(process, work)
    world.scheduler.spawn(Process(f"{name} limit"), reap)
    if world.faults.injects(Fault.LOSE, f"the answer of {name}"):
        world.scheduler.sleep(world.faults.rng.choice((0.0, 0.01, 20.0)))
        raise NamedError("Lambda.SdkClientException")
    ended.wait()
    if not answers:
        raise NamedError(errors[-1])
    return answers[0]
