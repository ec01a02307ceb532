"""Step Functions: executions of the real definition, as `infra.workflow` makes it.

It knows the kinds of states, paths, retries and catches that the definition uses. An execution that
failed can be redriven: it goes on with the state that failed.
"""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tests.simulation.functions import NamedError, invoke
from tests.simulation.scheduler import Process
from tests.simulation.threads import ThreadPoolExecutor
from tests.simulation.world import World

Json = dict[str, Any]
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
