"""Step Functions: executions of the real definition, as `infra.definition` makes it.

It knows the kinds of states, retries, catches and Maps that the definition uses. An execution that
failed can be redriven: of a Map only the children that did not succeed run again, of a Parallel
state only the branches that did not, each from its own state that failed or was stopped.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.simulation.functions import NamedError, head_object, invoke, queue_event
from tests.simulation.paths import catch, choose, fill, follow, look, output_of, retry_wait
from tests.simulation.scheduler import Process
from tests.simulation.threads import Event

if TYPE_CHECKING:
    from tests.simulation.world import World

Json = dict[str, Any]
DEFINITION = Path(__file__).parents[1] / "infra/workflow.json"
ACCOUNT = "arn:aws:states:eu-west-1:111122223333"
MACHINE = f"{ACCOUNT}:stateMachine:runs"
CHILD_SECONDS = 300.0  # the life of an Express child
INLINE_AT_ONCE = 40  # iterations of an inline Map


@lru_cache(maxsize=1)
def read_definition() -> Json:
    """Return the definition that `tests/infra/test_workflow.py` compares with the stack's."""
    definition: Json = json.loads(DEFINITION.read_text())
    return definition


@dataclass(slots=True)
class Children:
    """The children of one Map run, or the iterations of an inline Map."""

    items: list[Any]
    succeeded: set[int] = field(default_factory=set)
    failed: int = 0  # in this attempt


@dataclass(slots=True)
class Branch:
    """Where a walk through the states of a machine or of a branch is; a redrive goes on there."""

    states: Json
    state: str
    data: Json
    children: Children | None = None  # of the Map that failed
    branches: list[Branch] = field(default_factory=list)  # of the Parallel state that failed
    ended: bool = False


class Execution:
    """One execution; `state` says where it is or why it ended."""

    def __init__(self, world: World, name: str, data: Json) -> None:
        self.name = name
        self.status = "RUNNING"
        self.redrives = 0  # so far
        self.over = Event(world.scheduler)  # set while it does not run
        self._world = world
        self.told = data  # the input
        self._main = _begin(read_definition(), data)
        self._process = Process(f"execution {name}")
        self._inner: dict[Process, list[Process]] = {}  # Maps and branches, by what is around them

    def start(self) -> None:
        """Begin, or go on."""
        self.status = "RUNNING"
        self.over.clear()
        self._process = Process(f"execution {self.name}")
        self._world.scheduler.spawn(self._process, self._run)

    def redrive(self) -> None:
        """Go on after a failure."""
        self.redrives += 1
        self.start()

    def stop(self) -> None:
        """Stop it; what it has invoked goes on."""
        self._kill(self._process)
        self._world.model.execution_stopped(self.name)
        self.status = "ABORTED"
        self.over.set()

    def _run(self) -> None:
        try:
            self._walk(self._main, self._process)
            self.status = "SUCCEEDED"
        except NamedError:
            self._world.model.execution_failed(self.name)
            self.status = "FAILED"
        self._world.note(self.status)
        self.over.set()

    def _walk(self, branch: Branch, process: Process) -> None:
        """Go from state to state, to the end.

        Raises:
            NamedError: a state failed.
        """
        while not branch.ended:
            self._world.note(branch.state)
            one = branch.states[branch.state]
            if one["Type"] == "Succeed":
                branch.ended = True
                return
            try:
                following, branch.data = self._step(one, branch, process)
                branch.ended = following is None
                branch.state = following or branch.state
            except NamedError as error:
                caught = catch(one, error)
                if caught is None:
                    self._world.note(f"{branch.state} failed: {error.name}")
                    raise
                branch.state = caught
            branch.children = None
            branch.branches = []

    def _step(self, state: Json, branch: Branch, process: Process) -> tuple[str | None, Json]:
        data = branch.data
        match state["Type"]:
            case "Choice":
                return choose(state, data), data
            case "Wait":
                self._world.scheduler.sleep(look(state["SecondsPath"], data))
            case "Map":
                self._map(state, branch, process)
            case "Parallel":
                self._parallel(state, branch, process)
                data = output_of(state, [one.data for one in branch.branches], data)
            case "Task":
                context = {"Execution.Name": self.name, "StateMachine.Id": MACHINE}
                answer = self._attempts(state, data, context, float("inf"))
                data = output_of(state, {"Payload": answer}, data)
        return follow(state), data

    def _inside(self, process: Process) -> Process:
        """Return a process for a Map or for branches; it dies with `process`."""
        inner = Process(process.name)
        self._inner.setdefault(process, []).append(inner)
        return inner

    def _kill(self, process: Process) -> None:
        for inner in self._inner.pop(process, []):
            self._kill(inner)
        self._world.scheduler.kill(process)

    def _parallel(self, state: Json, around: Branch, process: Process) -> None:
        """Run the branches at the same time; of a state that failed before, those without an end.

        Raises:
            NamedError: a branch failed; the others are stopped.
        """
        if not around.branches:
            around.branches = [_begin(one, around.data) for one in state["Branches"]]
        waiting = [one for one in around.branches if not one.ended]
        inner, over = self._inside(process), Event(self._world.scheduler)
        errors: list[NamedError] = []

        def work(branch: Branch) -> None:
            try:
                self._walk(branch, inner)
            except NamedError as error:
                errors.append(error)
            if errors or all(one.ended for one in around.branches):
                over.set()

        for branch in waiting:
            self._world.scheduler.spawn(inner, partial(work, branch))
        if waiting:  # else it was stopped after its last branch had ended
            over.wait()
        if errors:
            self._kill(inner)
            raise errors[0]

    def _map(self, state: Json, branch: Branch, process: Process) -> None:
        """Run the children of a Map; of one that failed before, those that did not succeed.

        Raises:
            NamedError: more children failed than the Map tolerates.
        """
        children = branch.children = branch.children or self._read_items(state, branch.data)
        children.failed = 0
        tolerated = state.get("ToleratedFailurePercentage", 0) * len(children.items) / 100
        # The children of a Map that fails are stopped; what they have invoked goes on.
        inner, over = self._inside(process), Event(self._world.scheduler)
        waiting = [n for n in range(len(children.items)) if n not in children.succeeded]
        active = min(_at_once(state, branch.data), len(waiting))

        def work() -> None:
            nonlocal active
            while waiting and children.failed <= tolerated:
                number = waiting.pop(0)
                if self._child(state, branch.data, children.items[number]):
                    children.succeeded.add(number)
                else:
                    children.failed += 1
            active -= 1
            if not active or children.failed > tolerated:
                over.set()

        for _ in range(active):
            self._world.scheduler.spawn(inner, work)
        if waiting:
            over.wait()
        if children.failed > tolerated:
            self._kill(inner)
            raise NamedError("States.ExceedToleratedFailureThreshold")

    def _read_items(self, state: Json, data: Json) -> Children:
        if "ItemsPath" in state:
            return Children(list(look(state["ItemsPath"], data)))
        key = look(state["ItemReader"]["Parameters"]["Key.$"], data)
        _, run, name = key.split("/")
        lines = self._world.records[run].get(name)
        if lines is None:
            raise NamedError("States.ItemReaderFailed")
        return Children([json.loads(line) for line in lines.splitlines()])

    def _child(self, state: Json, data: Json, item: Any) -> bool:
        """Run one child workflow or iteration; return whether it succeeded."""
        values = fill(state["ItemSelector"], data, {"Map.Item.Value": item})
        processor = state["ItemProcessor"]
        states, name = processor["States"], processor["StartAt"]
        now = self._world.scheduler.now
        began = datetime.fromtimestamp(now, UTC).isoformat()
        context = {"State.EnteredTime": began, "Execution.StartTime": began}
        until = math.inf if "ItemsPath" in state else now + CHILD_SECONDS
        while name is not None and states[name]["Type"] == "Task":
            task = states[name]
            try:
                self._attempts(task, values, context, until)
                name = follow(task)
            except NamedError as error:
                self._world.note(f"child failed: {error.name}")
                name = catch(task, error)
                if name is None:
                    return False
        return True

    def _attempts(self, state: Json, data: Json, context: Json, until: float) -> Json:
        """Invoke a task's function until it answers or no Retry is left."""
        scheduler = self._world.scheduler
        tried: dict[int, int] = {}
        while True:
            try:
                return self._call(state, data, context, until - scheduler.now)
            except NamedError as error:
                wait = retry_wait(state, error, tried)
                if wait is None:
                    raise
                jitter = any("JitterStrategy" in rule for rule in state["Retry"])
                scheduler.sleep(scheduler.rng.uniform(0.0, wait) if jitter else wait)

    def _call(self, state: Json, data: Json, context: Json, seconds: float) -> Json:
        """Call the service of a task once; a NamedError says that it failed or had no time."""
        parameters = state["Parameters"]
        if state["Resource"].endswith(":s3:headObject"):
            return head_object(self._world, fill(parameters, data, context)["Key"], seconds)
        function = parameters["FunctionName"].removeprefix("Functions").removesuffix(".Arn").lower()
        payload = fill(parameters["Payload"], data, context)
        if parameters.get("InvocationType") == "Event":
            return queue_event(self._world, function, payload)
        return invoke(self._world, function, payload, seconds)


class StateMachine:
    """The executions by name, and what is told of those that fail."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.executions: dict[str, Execution] = {}

    def start(self, name: str, data: Json) -> bool:
        """Start an execution; return False where the name is taken."""
        if name in self.executions:
            return False
        self._world.model.execution_started(name)
        execution = self.executions[name] = Execution(self._world, name, data)
        execution.start()
        return True


def _at_once(state: Json, data: Json) -> int:
    """Return how many children of a Map run at once."""
    path = state.get("MaxConcurrencyPath")
    given = int(look(path, data)) if path else INLINE_AT_ONCE
    return min(given, INLINE_AT_ONCE) if "ItemsPath" in state else given


def _begin(machine: Json, data: Json) -> Branch:
    """Return the walk through a machine, or a branch of one, before its first state."""
    return Branch(machine["States"], str(machine["StartAt"]), data)
