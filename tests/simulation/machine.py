"""Step Functions: executions of the real definition, as `infra.workflow` makes it.

It knows the kinds of states, paths, retries and catches that the definition uses. An execution that
failed can be redriven: it goes on with the state that failed.
"""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from s3unzip.aws import extract, intake, plan, settle
from tests.simulation.promises import ViolationError
from tests.simulation.threads import Event, ThreadPoolExecutor
from tests.simulation.world import Fault, Process, Scheduler, World
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


DEFINITION = Path(__file__).with_name("workflow.json")
MACHINE = "arn:aws:states:eu-west-1:111122223333:stateMachine:runs"


# tests/infra/test_workflow.py compares it with the stack's.
MEANT: Json = json.loads(DEFINITION.read_text())


class Execution:
    """One execution; `status` says whether it runs, or how it ended."""

    def __init__(
        self, world: World, name: str, given: Json, failed: Callable[["Execution"], None]
    ) -> None:
        self.name = name
        self.given = given
        self.status = "RUNNING"
        self.began = self.ended = 0.0  # of the last time that it was started or redriven
        self._failed = failed  # called when it has ended otherwise than well
        self._world = world
        self._state = MEANT["StartAt"]
        self._data = given

    def start(self) -> None:
        self.status = "RUNNING"
        self.began = self._world.scheduler.now
        self._process = Process(f"execution {self.name}")
        self._world.scheduler.spawn(self._process, self._run)

    def stop(self) -> None:
        self._world.scheduler.kill(self._process)
        self._end("ABORTED")

    def _end(self, status: str) -> None:
        self.status = status
        self.ended = self._world.scheduler.now
        if status != "SUCCEEDED":
            self._failed(self)

    def _run(self) -> None:
        states = MEANT["States"]
        try:
            while states[self._state]["Type"] != "Succeed":
                self._world.note(self._state)
                self._state, self._data = self._step(states[self._state], self._data)
        except NamedError as error:
            self._world.note(f"{self._state} failed: {error.name}")
            self._end("FAILED")
        else:
            self._end("SUCCEEDED")

    def _step(self, state: Json, data: Json) -> tuple[str, Json]:
        if state["Type"] == "Choice":
            fits = (rule["Next"] for rule in state["Choices"] if _holds(rule, data))
            return next(fits, state["Default"]), data
        if state["Type"] == "Wait":
            self._world.scheduler.sleep(_find(state["SecondsPath"], data))
            return state["Next"], data
        if state["Type"] == "Map":
            self._map(state, data)
            return state["Next"], data
        return state["Next"], self._attempt(state, data)

    def _map(self, state: Json, data: Json) -> None:
        if "ItemsPath" in state:
            items = _find(state["ItemsPath"], data)
        else:
            path = state["ItemReader"]["Parameters"]["Key.$"]
            _, day, run, folder, name = _find(path, data).split("/")
            try:
                lines = self._world.records[f"{day}/{run}"][f"{folder}/{name}"]
                items = [json.loads(line) for line in lines.splitlines()]
            except (KeyError, ValueError):
                raise NamedError("States.ItemReaderFailed") from None
            assert state["ToleratedFailurePercentage"] == 100
        with ThreadPoolExecutor(_find(state["MaxConcurrencyPath"], data)) as pool:
            list(pool.map(partial(self._do_item, state, data["run"]), items))

    def _do_item(self, state: Json, run: str, given: Json) -> None:
        processor: Json = state["ItemProcessor"]
        values: Json = {"$.run": run, "$$.Map.Item.Value": given}
        chosen = state["ItemSelector"].items()
        item = {name.removesuffix(".$"): values[path] for name, path in chosen}
        task = processor["States"][processor["StartAt"]]
        try:
            self._attempt(task, item)
        except NamedError as error:
            inline = processor["ProcessorConfig"]["Mode"] == "INLINE"
            assert not inline or "States.ALL" in task["Catch"][0]["ErrorEquals"]
            self._world.note(f"{item['task']['id']} is left: {error.name}")

    def _attempt(self, state: Json, data: Json) -> Json:
        scheduler = self._world.scheduler
        function = state["Parameters"]["FunctionName"]
        name = function.removeprefix("Functions").removesuffix(".Arn").lower()
        payload = state["Parameters"].get("Payload", {})
        values = {"$": data, "$$.Execution.Name": self.name}
        event = {field.removesuffix(".$"): values[path] for field, path in payload.items()}
        tried: dict[int, int] = {}
        while True:
            try:
                return invoke(self._world, name, event or data)
            except NamedError as error:
                wait = _retry_wait(state, error, tried)
                if wait is None:
                    raise
                scheduler.sleep(scheduler.rng.uniform(0.0, wait))


def _find(path: str, data: Json) -> Any:
    return data[path.removeprefix("$.")]


def _holds(rule: Json, data: Json) -> bool:
    name = rule["Variable"].removeprefix("$.")
    if "IsPresent" in rule:
        return (name in data) is rule["IsPresent"]
    return bool(data[name] == rule["StringEquals"])


def _retry_wait(state: Json, error: NamedError, tried: dict[int, int]) -> float | None:
    """Return the longest wait before the next attempt, None if there is none."""
    for number, rule in enumerate(state["Retry"]):
        names = rule["ErrorEquals"]
        if error.name in names or "States.TaskFailed" in names:
            done = tried.get(number, 0)
            if done >= rule["MaxAttempts"]:
                return None
            tried[number] = done + 1
            wait = rule["IntervalSeconds"] * rule["BackoffRate"] ** done
            return float(min(wait, rule.get("MaxDelaySeconds", wait)))
    return None
