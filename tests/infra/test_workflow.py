"""The state machine's definition."""

import json
import os
from collections.abc import Iterator
from typing import Any

from s3unzip import errors, rates
from s3unzip.aws.executions import EXECUTION_ROUNDS, INLINE_ROUNDS
from s3unzip.model import Next
from s3unzip.settings import MAX_VALUES
from s3unzip.settling.loop import MAX_IDLE_ROUNDS
from tests.infra.templates import Synthesized
from tests.simulation.machine import DEFINITION

HISTORY = 25_000  # events of one execution (quotas of Step Functions)
ENTERED_AND_EXITED = 2
ATTEMPT_EVENTS = 3  # scheduled, started, ended
# Of an iteration of an inline Map: started, task entered and exited, the state for what is left
# entered and exited, succeeded.
ITEM_EVENTS = 6
MAP_EVENTS = 4  # entered, started, ended, exited
MAP_RUN_EVENTS = 2  # started, ended
THROTTLED = "Lambda.TooManyRequestsException"
OF_LAMBDA = {
    "Lambda.ClientExecutionTimeoutException",
    "Lambda.ServiceException",
    "Lambda.AWSLambdaException",
    "Lambda.SdkClientException",
}


OF_STATES = {
    "States.TaskFailed",
    "States.ALL",
    "States.ItemReaderFailed",
    "States.ResultWriterFailed",
}


def _each_state(definition: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, state in definition["States"].items():
        yield name, state
        if "ItemProcessor" in state:
            yield from _each_state(state["ItemProcessor"])


def _states_of(made: Synthesized) -> dict[str, dict[str, Any]]:
    return dict(_each_state(made.definition()))


def test_states(dev: Synthesized) -> None:
    """The machine plans, does a round by one of two Maps, settles, and so on."""
    definition, states = dev.definition(), _states_of(dev)
    follows = {name: state.get("Next") for name, state in states.items() if state.get("Next")}
    assert follows == {
        "Plan": "Next?",
        "Few tasks": "Settle",
        "Many tasks": "Settle",
        "Settle": "Next?",
        "Wait for functions": "Settle",
    }
    assert len(states) == 11
    chosen = {one["Variable"]: one["Next"] for one in states["Planned?"]["Choices"]}
    assert chosen == {"$.wait": "Wait for functions", "$.next": states["Plan"]["Next"]}
    chosen = {one["StringEquals"]: one["Next"] for one in states["Next?"]["Choices"]}
    assert chosen == {"few": "Few tasks", "many": "Many tasks"}
    assert states["Next?"]["Default"] == "Done"
    entered, name = 1, definition["StartAt"]
    after = {**follows, "Planned?": states["Planned?"]["Default"]}
    following = iter(("Few tasks", "Done"))  # one round
    while name != "Done":
        entered, name = entered + 1, after.get(name) or next(following)
    assert entered == rates.TRANSITIONS


def test_data_is_what_the_functions_return(dev: Synthesized) -> None:
    """Every path of the definition is a field of `Next`; steps get all of it and give all of it."""
    states = _states_of(dev)
    few, many = states["Few tasks"], states["Many tasks"]
    paths = {few["ItemsPath"], few["MaxConcurrencyPath"], many["MaxConcurrencyPath"]}
    paths |= {few["ItemSelector"]["run.$"], many["ItemReader"]["Parameters"]["Key.$"]}
    assert {path.removeprefix("$.") for path in paths} <= set(Next.__struct_fields__)
    for name in ("Plan", "Extract", "Extract one of many"):
        assert states[name]["Parameters"]["Payload.$"] == "$"
    assert states["Settle"]["Parameters"]["Payload"] == {
        "state.$": "$",
        "execution.$": "$$.Execution.Name",
    }
    for name in ("Plan", "Settle"):
        assert states[name]["OutputPath"] == "$.Payload"


def test_every_error_name_exists(dev: Synthesized) -> None:
    """The machine ends a task at each error that a retry would meet again, and knows no others."""
    names = {
        name
        for state in _states_of(dev).values()
        for retry in state.get("Retry", []) + state.get("Catch", [])
        for name in retry["ErrorEquals"]
    }
    tree = {
        name
        for name, error in vars(errors).items()
        if isinstance(error, type) and issubclass(error, errors.S3UnzipError)
    }
    lasting = {name for name in tree if not getattr(errors, name).retryable}
    assert names - OF_LAMBDA - OF_STATES - {THROTTLED} == lasting


def test_retries(dev: Synthesized) -> None:
    """Faults of Lambda are tried again for minutes, and full functions for hours, with jitter."""
    for name, state in _states_of(dev).items():
        if state["Type"] != "Task":
            continue
        by_error = {error: one for one in state["Retry"] for error in one["ErrorEquals"]}
        faults, full = by_error["Lambda.ServiceException"], by_error[THROTTLED]
        assert faults["IntervalSeconds"] * (2 ** faults["MaxAttempts"] - 1) >= 120
        assert by_error["UsageError"]["MaxAttempts"] == 0
        waits = (5 * full["BackoffRate"] ** n for n in range(full["MaxAttempts"]))
        assert (full["JitterStrategy"], full["IntervalSeconds"]) == ("FULL", 5)
        assert sum(min(wait, full["MaxDelaySeconds"]) for wait in waits) / 2 >= 7_200, name


def _attempts_of(state: dict[str, Any]) -> int:
    return 1 + sum(int(retry["MaxAttempts"]) for retry in state["Retry"])


def test_a_history_is_bounded(dev: Synthesized) -> None:
    """An execution whose every retrier is used up in every round fits into its history."""
    states = _states_of(dev)
    plan, settle = (
        ENTERED_AND_EXITED + ATTEMPT_EVENTS * _attempts_of(states[name])
        for name in ("Plan", "Settle")
    )
    item = ITEM_EVENTS + ATTEMPT_EVENTS * _attempts_of(states["Extract"])
    inline = MAP_EVENTS + MAX_VALUES["max_few_tasks"] * item
    distributed = MAP_EVENTS + MAP_RUN_EVENTS * _attempts_of(states["Many tasks"])
    rounds = INLINE_ROUNDS * inline + (EXECUTION_ROUNDS - INLINE_ROUNDS) * distributed
    choices = ENTERED_AND_EXITED * (EXECUTION_ROUNDS + 2)  # Planned?, and Next? of each round
    begun_and_ended = 2
    events = begun_and_ended + plan + rounds + EXECUTION_ROUNDS * settle + choices
    assert 20_000 < events < HISTORY
    assert MAX_IDLE_ROUNDS > INLINE_ROUNDS  # a run without progress is in a Distributed Map, too


def test_no_failed_task_stops_a_round(dev: Synthesized) -> None:
    """The inline Map catches every error of a task, and the distributed one tolerates all."""
    states = _states_of(dev)
    (caught,) = states["Extract"]["Catch"]
    assert caught["ErrorEquals"] == ["States.ALL"]
    assert states["Many tasks"]["ToleratedFailurePercentage"] == 100


def test_results_stay_out_of_the_data(dev: Synthesized) -> None:
    """A task's output is empty; results of children go to the work bucket, beside their list."""
    states = _states_of(dev)
    for name in ("Extract", "Extract one of many"):
        assert states[name]["OutputPath"] is None
    many = states["Many tasks"]
    assert many["ResultPath"] is None
    writer = many["ResultWriter"]
    assert writer["Parameters"]["Prefix.$"] == "States.Format('{}-result', $.list)"
    assert many["ItemProcessor"]["ProcessorConfig"]["ExecutionType"] == "STANDARD"
    assert writer["Parameters"]["Bucket"] == many["ItemReader"]["Parameters"]["Bucket"]


def test_rights_of_the_state_machine(dev: Synthesized) -> None:
    """Its role calls the three functions of a run, and reads and writes what rounds have."""
    found = dev.policy("WorkflowRunsRoleDefaultPolicy")
    called = {where for action, where in found if action == "lambda:InvokeFunction"}
    assert {one.split("Functions")[1][:4] for one in called} == {"Plan", "Extr", "Sett"}
    (machine,) = dev.resources("AWS::StepFunctions::StateMachine").values()
    assert machine["StateMachineName"] == dev.environment.stack.name  # by which others name it
    objects = {where for action, where in found if action.startswith("s3:")}
    assert len(objects) == 1
    assert objects.pop().endswith("/runs/*/rounds/*")


def test_the_simulation_has_the_definition(dev: Synthesized) -> None:
    """A change of the state machine shows in its snapshot (UPDATE_SNAPSHOTS=1 writes it)."""
    text = json.dumps(dev.definition(), indent=1) + "\n"
    if os.environ.get("UPDATE_SNAPSHOTS"):
        DEFINITION.write_text(text)
    assert DEFINITION.read_text() == text
