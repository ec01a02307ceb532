"""The simulation's Lambda functions, Step Functions, EventBridge and SQS.

The handlers of Lambda are the real ones: they are invoked, killed at their limit, crashed, and
answered or not. Step Functions executes the real definition, as `infra.workflow` makes it. It knows
the kinds of states, paths, retries and catches that the definition uses. An execution that failed
can be redriven: it goes on with the state that failed.

Clients of boto3 retry by themselves, so that a service's passing faults are not seen here; what is
seen is that calls take effect late, twice, or without an answer.
"""

import itertools
import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from botocore.exceptions import ConnectionClosedError

from s3unzip.aws import extract, intake, plan, settle
from s3unzip.run_ids import execution_name
from tests.simulation.promises import AGAIN, RUN_FAILED, WITH_ERRORS, ViolationError
from tests.simulation.threads import Event, ThreadPoolExecutor, Waiters
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
    """What an invocation failed with: the name that Retry and Catch match."""


class Limited(Invocation):
    """The context object of an invocation that begins now."""

    def __init__(self, scheduler: Scheduler, seconds: float) -> None:
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
            world.promises.must(
                any(fault.startswith(Fault.DELAY) for fault in world.faults.injected),
                "near its limit a worker stops",
                name,
            )
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


# tests/infra/test_dashboard.py compares it with the stack's.
MEANT: Json = json.loads(DEFINITION.read_text())


class Execution:
    """One execution; `status` says whether it runs, or how it ended."""

    def __init__(
        self, world: World, name: str, given: Json, failed: Callable[["Execution"], None]
    ) -> None:
        self.name = name
        self.given = given
        self.status = "RUNNING"
        self.first_began = math.inf
        self.began = self.ended = 0.0  # of the last time that it was started or redriven
        self._failed = failed  # called when it has ended otherwise than well
        self._world = world
        self._state = MEANT["StartAt"]
        self._data = given

    def start(self) -> None:
        self.status = "RUNNING"
        self.began = self._world.scheduler.now
        self.first_began = min(self.first_began, self.began)
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
            self._world.note(f"{self._state} failed: {error}")
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
            key = _find(state["ItemReader"]["Parameters"]["Key.$"], data)
            name = key.removeprefix(f"runs/{data['run']}/")
            try:
                items = list(map(json.loads, self._world.records[data["run"]][name].splitlines()))
            except (KeyError, ValueError):
                raise NamedError("States.ItemReaderFailed") from None
            assert state["ToleratedFailurePercentage"] == 100
        with ThreadPoolExecutor(_find(state["MaxConcurrencyPath"], data)) as pool:
            list(pool.map(partial(self._do_item, state, data["run"]), items))

    def _do_item(self, state: Json, run: str, given: Json) -> None:
        processor: Json = state["ItemProcessor"]
        values: Json = {"$.run": run, "$$.Map.Item.Value": given}
        item = _fill(state["ItemSelector"], values)
        task = processor["States"][processor["StartAt"]]
        try:
            self._attempt(task, item)
        except NamedError as error:
            inline = processor["ProcessorConfig"]["Mode"] == "INLINE"
            assert not inline or "States.ALL" in task["Catch"][0]["ErrorEquals"]
            self._world.note(f"{item['task']['id']} is left: {error}")

    def _attempt(self, state: Json, data: Json) -> Json:
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


def _fill(template: Json, values: Json) -> Json:
    return {name.removesuffix(".$"): values[path] for name, path in template.items()}


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
        done = tried.get(number, 0)
        if {str(error), "States.TaskFailed"}.intersection(rule["ErrorEquals"]):
            if done >= rule["MaxAttempts"]:
                return None
            tried[number] = done + 1
            wait = rule["IntervalSeconds"] * rule["BackoffRate"] ** done
            return float(min(wait, rule.get("MaxDelaySeconds", wait)))
    return None


NAME = re.compile(r"[A-Za-z0-9_-]{1,80}")  # of an execution
ATTEMPTS = 5  # before a message is a dead letter
STOPPED = frozenset({"FAILED", "ABORTED"})
LOST = partial(ConnectionClosedError, endpoint_url="https://service")


class TakenError(Exception):
    """ExecutionAlreadyExists."""


class UnknownError(Exception):
    """ExecutionDoesNotExist."""


@dataclass(slots=True)
class Message:
    """One message of the queue."""

    id: str
    body: str
    visible: float  # when it can be received; infinite once it is deleted
    changed: Waiters = field(default_factory=Waiters)  # woken when `visible` changes
    receipt: str = ""

    def hide_until(self, time: float) -> None:
        self.visible = math.inf if self.visible == math.inf else time
        self.changed.wake()


@dataclass(eq=False)
class Services:
    """What delivers and answers between the functions, and who mends what failed."""

    world: World
    executions: dict[str, Execution] = field(default_factory=dict)  # by name
    dead_letters: list[str] = field(default_factory=list)
    undelivered: list[Json] = field(default_factory=list)  # events that settle did not take
    news_seconds: float = 0.0  # that the news of a failed execution needs
    _messages: list[Message] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=partial(itertools.count, 1))

    # SQS

    def send(self, body: str) -> None:
        world = self.world
        for _ in range(1 + world.faults.injects(Fault.TWICE, "message")):
            late = world.faults.delay() if world.faults.injects(Fault.DELAY, "message") else 0.0
            self._messages.append(
                Message(f"message-{next(self._numbers)}", body, world.scheduler.now + late)
            )
            world.scheduler.spawn(Process("queue"), partial(self._serve, self._messages[-1]))

    def _serve(self, message: Message) -> None:
        scheduler = self.world.scheduler
        for attempt in itertools.count(1):
            while scheduler.now < message.visible < math.inf:
                message.changed.wait(message.visible - scheduler.now)
            if message.visible == math.inf:
                return
            if attempt > ATTEMPTS:
                self.dead_letters.append(message.body)
                return
            message.receipt = f"receipt-{next(self._numbers)}"
            message.visible = scheduler.now + 360.0  # six times the function's limit
            for again in range(1 + self.world.faults.injects(Fault.TWICE, "delivery")):
                scheduler.spawn(
                    Process("event source"), partial(self._deliver, message, attempt + again)
                )

    def _deliver(self, message: Message, attempt: int) -> None:
        record = {
            "messageId": message.id,
            "receiptHandle": message.receipt,
            "body": message.body,
            "attributes": {"ApproximateReceiveCount": str(attempt)},
        }
        try:
            answer = invoke(self.world, "intake", {"Records": [record]})
        except NamedError as error:
            if str(error) == "Lambda.TooManyRequestsException":
                message.hide_until(self.world.scheduler.now + 10)
            return
        lost = self.world.faults.injects(Fault.TWICE, "delete message")
        if not answer["batchItemFailures"] and not lost:
            message.hide_until(math.inf)

    # EventBridge

    def _tell_end(self, execution: Execution) -> None:
        """Tell the settle function that an execution failed, at least once."""
        detail = {
            "name": execution.name,
            "stateMachineArn": MACHINE,
            "status": execution.status,
            "input": json.dumps(execution.given),
            "startDate": execution.first_began * 1_000,
            "stopDate": execution.ended * 1_000,
        }
        for _ in range(1 + self.world.faults.injects(Fault.TWICE, "failure")):
            news = partial(self._settle, {"detail": detail})
            self.world.scheduler.spawn(Process("event bus"), news)

    def _settle(self, event: Json) -> None:
        """Invoke the settle function with a failure until it takes it, or give up."""
        world = self.world
        if self.news_seconds:
            world.scheduler.sleep(self.news_seconds)
        if world.faults.injects(Fault.DELAY, "failure"):
            world.scheduler.sleep(10 * world.faults.delay())
        for _ in range(3):  # as Lambda does with an event that it takes asynchronously
            try:
                invoke(world, "settle", event)
            except NamedError:
                world.scheduler.sleep(60.0)
            else:
                return
        self.undelivered.append(event)

    # What boto3 gives the functions

    def client(self, service: str, config: object = None, **more: object) -> Any:
        return {
            "sqs": SimpleNamespace(change_message_visibility=self._change_visibility),
            "stepfunctions": SimpleNamespace(
                start_execution=self._start_execution,
                describe_execution=self._describe_execution,
                exceptions=SimpleNamespace(
                    ExecutionAlreadyExists=TakenError, ExecutionDoesNotExist=UnknownError
                ),
            ),
            "events": SimpleNamespace(
                put_events=self._put_events, meta=SimpleNamespace(partition="aws")
            ),
        }[service]

    def _change_visibility(self, QueueUrl: str, ReceiptHandle: str, VisibilityTimeout: int) -> Any:  # noqa: N803 - boto3's
        def effect() -> None:
            for message in self._messages:
                if message.receipt == ReceiptHandle:  # its last one
                    message.hide_until(self.world.scheduler.now + VisibilityTimeout)

        return self.world.act("change visibility", effect, LOST)

    def _start_execution(self, stateMachineArn: str, name: str, input: str) -> None:  # noqa: A002, N803 - boto3's
        def effect() -> bool:
            if self.start(name, json.loads(input)):
                return True
            # API_StartExecution: equal name and input while it is at work are no error.
            known = self.executions[name]
            return (known.status, known.given) == ("RUNNING", json.loads(input))

        if not self.world.act(f"start {name}", effect, LOST):
            raise TakenError

    def _describe_execution(self, executionArn: str) -> Json:  # noqa: N803 - boto3's
        name = executionArn.rpartition(":")[2]

        def effect() -> Json:
            execution = self.executions.get(name)
            if execution is None:
                return {}
            return {
                "status": execution.status,
                "startDate": datetime.fromtimestamp(execution.first_began, UTC),
                "redriveDate": datetime.fromtimestamp(execution.began, UTC),
                "input": json.dumps(execution.given),
            }

        answer = self.world.act(f"describe {name}", effect, LOST)
        if not answer:
            raise UnknownError
        return answer

    def start(self, name: str, given: Json) -> bool:
        if name in self.executions:
            return False
        self.world.promises.must(
            NAME.fullmatch(name) is not None, "API_StartExecution: 1-80 characters", name
        )
        self.executions[name] = Execution(self.world, name, given, self._tell_end)
        self.executions[name].start()
        self.world.promises.executed.add(run_of(name))
        return True

    def _put_events(self, Entries: list[Json]) -> Json:  # noqa: N803 - boto3's
        def effect() -> Json:
            for entry in Entries:
                detail = json.loads(entry["Detail"])
                self.world.note(f"event {entry['DetailType']}: {detail['verdict']}")
                self.world.promises.announced(entry["DetailType"], detail)
            return {"FailedEntryCount": 0}

        return self.world.act("put events", effect, LOST)

    # The operator

    def failed(self) -> dict[str, Execution | None]:
        works = {name: one for name, one in self.executions.items() if "wait" not in one.given}
        last = {run_of(name): one for name, one in works.items()}
        stopped = {run: one for run, one in last.items() if one.status in STOPPED}
        runs = self.world.promises.runs.items()
        return stopped | {run: last.get(run) for run, one in runs if one.verdict == RUN_FAILED}

    def abort(self) -> None:
        world = self.world
        active = [one for one in self.executions.values() if one.status == "RUNNING"]
        if not active:
            return
        execution = world.faults.rng.choice(active)
        soon = world.faults.rng.random() < 0.5

        def work() -> None:
            if execution.status == "RUNNING":
                world.note(f"abort {execution.name}")
                execution.stop()
            if soon:
                # Its functions may still go on.
                world.scheduler.sleep(world.faults.rng.choice((0.01, 1.0, 20.0, 120.0)))
                self._resume(run_of(execution.name), execution)

        world.scheduler.spawn(Process("operator"), work)

    def refused(self) -> set[str]:
        """Return the keys of archives whose event is a dead letter, or whose execution failed."""
        keys = {body["detail"]["object"]["key"] for body in map(json.loads, self.dead_letters)}
        stopped = [one.given for one in self.executions.values() if one.status in STOPPED]
        return keys | {one["request"]["source"]["key"] for one in stopped if "request" in one}

    def is_unfollowed(self) -> bool:
        """Say whether something tells that older members may lie over a newer archive's."""
        stopped = any(
            one.status in STOPPED and re.search("-again|-w[0-9]+$", name)
            for name, one in self.executions.items()
        )
        failed = any(
            AGAIN in run and one.verdict == RUN_FAILED
            for run, one in self.world.promises.runs.items()
        )
        return bool(stopped or failed or self.dead_letters or self.undelivered)

    def mend(self) -> bool:
        """Resume all that can be seen to have failed; return whether there was anything."""
        failed, letters, events = self.failed(), self.dead_letters, self.undelivered
        self.dead_letters, self.undelivered = [], []

        def work() -> None:
            self.world.scheduler.sleep(600.0)  # until an operator does anything
            for body in letters:
                self.send(body)
            for event in events:
                self.world.scheduler.spawn(Process("event bus"), partial(self._settle, event))
            for run, execution in failed.items():
                self._resume(run, execution)

        self.world.scheduler.spawn(Process("operator"), work)
        return bool(failed or letters or events)

    def _resume(self, run: str, last: Execution | None) -> None:
        """Let a run go on by a new execution, or the failed one by Step Functions' own redrive."""
        redrives = self.world.faults.rng.random() < 0.3
        if last is not None and last.status in STOPPED and redrives:
            self.world.note(f"redrive {last.name}")
            last.start()
        elif last is None or last.status != "RUNNING":
            # A run without a plan is planned as it was asked for.
            asked = {} if last is None else last.given
            given = {name: one for name, one in asked.items() if name in {"request", "pin"}}
            self.start_next(run, {**given, "run": run})

    def retry(self) -> bool:
        """Remove what is in the way of members and resume runs with them; say whether any has."""
        promises, members = self.world.promises, self.world.members
        newest = [promises.versions[etag] for etag in promises.current.values()]
        runs = [
            run
            for run, one in promises.runs.items()
            if one.verdict == WITH_ERRORS and one.facts in newest and one.known
        ]
        for run in runs:
            for one in promises.runs[run].facts.members:
                found = promises.objects.get(one.key)
                if one.right and found and found.run is None and found.body != one.body:
                    members.delete([one.key])
                    del promises.objects[one.key]
            promises.reopened.add(run)
            again = partial(self.start_next, run, {"run": run, "failed": True})
            self.world.scheduler.spawn(Process("operator"), again)
        return bool(runs)

    def start_next(self, run: str, given: Json) -> None:
        names = (execution_name(run, number) for number in itertools.count(1))
        self.world.note(f"resume {run}")
        self.start(next(name for name in names if name not in self.executions), given)


def run_of(execution: str) -> str:
    """Return the run of an execution's name."""
    return f"{execution[:10]}/{re.sub('-[rw][0-9]+$', '', execution[11:])}"
