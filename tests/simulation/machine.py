"""Step Functions: executions of the real definition, as `infra.workflow` makes it.

It knows the kinds of states, paths, retries and catches that the definition uses. An execution that
failed can be redriven: it goes on with the state that failed.
"""

import json
import re
from functools import lru_cache
from pathlib import Path
from typing import Any

from tests.simulation.functions import NamedError, invoke
from tests.simulation.scheduler import Process
from tests.simulation.threads import Event
from tests.simulation.world import World

Json = dict[str, Any]
DEFINITION = Path(__file__).with_name("workflow.json")
MACHINE = "arn:aws:states:eu-west-1:111122223333:stateMachine:runs"
NAME = re.compile(r"[A-Za-z0-9_-]{1,80}")


@lru_cache(maxsize=1)
def read_definition() -> Json:
    """Return the definition that `tests/infra/test_workflow.py` compares with the stack's."""
    definition: Json = json.loads(DEFINITION.read_text())
    return definition


class Execution:
    """One execution; `status` says whether it runs, or how it ended."""

    def __init__(self, world: World, name: str, given: Json) -> None:
        self.name = name
        self.given = given
        self.status = "RUNNING"
        self.over = Event(world.scheduler)  # set while it does not run
        self._world = world
        self._state = read_definition()["StartAt"]
        self._data = given
        self._processes: list[Process] = []  # of the execution, and of its Map

    def start(self) -> None:
        """Begin, or go on in the state that failed."""
        self.status = "RUNNING"
        self.over.clear()
        self._spawn(self._run)

    def stop(self) -> None:
        """Stop it; what it has invoked goes on."""
        for process in self._processes:
            self._world.scheduler.kill(process)
        self.status = "ABORTED"
        self.over.set()

    def _spawn(self, *works: Any) -> None:
        process = Process(f"execution {self.name}")
        self._processes.append(process)
        for work in works:
            self._world.scheduler.spawn(process, work)

    def _run(self) -> None:
        states = read_definition()["States"]
        try:
            while states[self._state]["Type"] != "Succeed":
                self._world.note(self._state)
                self._state, self._data = self._step(states[self._state], self._data)
            self.status = "SUCCEEDED"
        except NamedError as error:
            self._world.note(f"{self._state} failed: {error.name}")
            self.status = "FAILED"
        self.over.set()

    def _step(self, state: Json, data: Json) -> tuple[str, Json]:
        """Do one state; return the next one and its data."""
        if state["Type"] == "Choice":
            fits = (rule["Next"] for rule in state["Choices"] if _holds(rule, data))
            return next(fits, state["Default"]), data
        if state["Type"] == "Map":
            self._map(state, data)
            return state["Next"], data
        return state["Next"], self._attempt(state, data)

    def _map(self, state: Json, data: Json) -> None:
        """Do the items of a Map; those that fail are tolerated, or caught."""
        processor = state["ItemProcessor"]
        if "ItemsPath" in state:
            items = _find(state["ItemsPath"], data)
        else:
            _, day, run, folder, name = _find(_reader(state), data).split("/")
            lines = self._world.records[f"{day}/{run}"][f"{folder}/{name}"]
            items = [json.loads(line) for line in lines.splitlines()]
            assert state["ToleratedFailurePercentage"] == 100
        waiting = list(items)
        active = min(len(waiting), _find(state["MaxConcurrencyPath"], data))
        over = Event(self._world.scheduler)

        def work() -> None:
            nonlocal active
            while waiting:
                given = {"$.run": data["run"], "$$.Map.Item.Value": waiting.pop(0)}
                chosen = state["ItemSelector"].items()
                item = {name.removesuffix(".$"): given[path] for name, path in chosen}
                self._do_item(processor, item)
            active -= 1
            if not active:
                over.set()

        if items:
            self._spawn(*[work] * active)
            over.wait()

    def _do_item(self, processor: Json, item: Json) -> None:
        task = processor["States"][processor["StartAt"]]
        try:
            self._attempt(task, item)
        except NamedError as error:
            inline = processor["ProcessorConfig"]["Mode"] == "INLINE"
            assert not inline or "States.ALL" in task["Catch"][0]["ErrorEquals"]
            self._world.note(f"{item['task']['id']} is left: {error.name}")

    def _attempt(self, state: Json, data: Json) -> Json:
        """Invoke a task's function until it answers or no Retry is left."""
        scheduler = self._world.scheduler
        function = state["Parameters"]["FunctionName"]
        name = function.removeprefix("Functions").removesuffix(".Arn").lower()
        tried: dict[int, int] = {}
        while True:
            try:
                return invoke(self._world, name, data)
            except NamedError as error:
                wait = _retry_wait(state, error, tried)
                if wait is None:
                    raise
                scheduler.sleep(scheduler.rng.uniform(0.0, wait))


class StateMachine:
    """The executions by name."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.executions: dict[str, Execution] = {}

    def start(self, name: str, given: Json) -> Execution | None:
        """Start an execution; return None where the name is taken."""
        if name in self.executions:
            return None
        valid = NAME.fullmatch(name) is not None
        self._world.promises.must(valid, "API_StartExecution: 1-80 characters", name)
        execution = self.executions[name] = Execution(self._world, name, given)
        execution.start()
        return execution


def _find(path: str, data: Json) -> Any:
    return data[path.removeprefix("$.")]


def _reader(state: Json) -> str:
    return str(state["ItemReader"]["Parameters"]["Key.$"])


def _holds(rule: Json, data: Json) -> bool:
    """Say whether the comparison of a Choice rule holds."""
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
