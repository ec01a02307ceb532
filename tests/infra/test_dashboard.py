"""The dashboard, the alarms and the state machine of the template."""

import json
import logging
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from infra.reasons import text_of
from s3unzip import errors, rates
from s3unzip.aws.executions import EXECUTION_ROUNDS, INLINE_ROUNDS
from s3unzip.aws.telemetry import metrics, record_archive
from s3unzip.model import Next
from s3unzip.settings import MAX_VALUES, METRICS, NAMESPACE, SERVICE
from s3unzip.settling.loop import MAX_IDLE_ROUNDS
from tests.infra.templates import Synthesized
from tests.simulation.services import DEFINITION
from tests.support.assemblies import TOPIC
from tests.support.reports import REPORT

FUNCTIONS = {"intake", "plan", "extract", "settle"}
PAGE = Path(__file__).resolve().parents[2] / "docs" / "howto" / "dashboard.md"


class DrawnMetric(NamedTuple):
    """One row of a metric widget, with its values spelled out."""

    namespace: str
    name: str
    dimensions: dict[str, str]
    options: dict[str, Any]


@pytest.fixture(scope="module")
def body(dev: Synthesized) -> dict[str, Any]:
    (board,) = dev.resources("AWS::CloudWatch::Dashboard").values()
    found: dict[str, Any] = json.loads(text_of(board["DashboardBody"]))
    return found


def _widgets_of(body: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [one["properties"] for one in body["widgets"] if one["type"] == kind]


def metrics_of(properties: dict[str, Any]) -> Iterator[DrawnMetric]:
    """Yield the metrics of a widget; ``.`` repeats what the row above has."""
    above: list[str] = []
    for row in properties["metrics"]:
        options = row[-1] if isinstance(row[-1], dict) else {}
        if "expression" in options:
            continue
        given = row[:-1] if options else row
        above = [above[at] if one == "." else one for at, one in enumerate(given)]
        yield DrawnMetric(
            above[0], above[1], dict(zip(above[2::2], above[3::2], strict=True)), options
        )


def _titled(body: dict[str, Any], title: str) -> dict[str, Any]:
    every = [one["properties"] for one in body["widgets"]]
    return next(one for one in every if one.get("title") == title)


def _names(body: dict[str, Any], title: str) -> set[str]:
    return {metric.name for metric in metrics_of(_titled(body, title))}


def test_every_metric_is_drawn(body: dict[str, Any]) -> None:
    """Every metric of the functions is drawn with the dimensions it has, and no other."""
    drawn = [
        metric
        for properties in _widgets_of(body, "metric")
        for metric in metrics_of(properties)
        if metric.namespace == NAMESPACE
    ]
    assert {metric.name for metric in drawn} == METRICS.keys()
    assert all(metric.dimensions == {"environment": "dev", "service": SERVICE} for metric in drawn)


def test_headline_is_on_top(body: dict[str, Any]) -> None:
    """The first row is numbers of the whole time range: archives, members, time, cost."""
    first = [one for one in body["widgets"] if one["y"] == 0]
    assert {one["properties"]["view"] for one in first} == {"singleValue"}
    assert all(one["properties"]["setPeriodToTimeRange"] for one in first)
    assert _names(body, "Archives") == {name for name in METRICS if name.startswith("Archives")}
    assert _names(body, "Members written") == {"MembersExtracted"}
    (time,) = metrics_of(_titled(body, "Put to done (s)"))
    assert (time.name, time.options["stat"]) == ("ArchiveDuration", "p95")
    dollars = _titled(body, "Dollars, estimated at us-east-1")["metrics"]
    lines = _titled(body, "Cost, estimated at us-east-1")["metrics"]
    assert set(dollars[0][0]["expression"].split(" + ")) == FUNCTIONS | {"requests", "runs"}
    assert _expressions(lines) == _expressions(dollars[1:])


def test_alarms_and_advice_follow(dev: Synthesized, body: dict[str, Any]) -> None:
    """The second row has the status of every alarm, and a text that names each once."""
    second = [one for one in body["widgets"] if one["y"] == 4]
    assert [one["type"] for one in second] == ["alarm", "text"]
    alarms = dev.resources("AWS::CloudWatch::Alarm")
    assert second[0]["properties"]["alarms"] == [f"<{name}.Arn>" for name in alarms]
    text = second[1]["properties"]["markdown"]
    links = re.findall(r"\[(\w+)\]\(#alarmsV2:alarm/<(\w+)>\)", text)
    assert sorted(target for _, target in links) == sorted(alarms)
    for name, target in links:
        assert alarms[target]["AlarmName"] == f"s3unzip-dev-{name}"
    for alarm in alarms.values():
        assert alarm["AlarmDescription"] in text


def test_order(body: dict[str, Any]) -> None:
    """Failures come before queues, queues before durations, cost last."""
    wanted = ["Archives", "Alarms", "Last 20 runs", "Failures by reason", "Queue: messages"]
    wanted += ["Put to done"]
    wanted += ["Bytes", "Function errors"]
    places = {one["properties"].get("title"): one["y"] for one in body["widgets"]}
    rows = [places[title] for title in wanted]
    assert rows == sorted(set(rows))
    assert all(one["x"] + one["width"] <= 24 for one in body["widgets"])
    assert len(body["widgets"]) <= 500  # of CloudWatch


def test_every_stage_has_its_spread(body: dict[str, Any]) -> None:
    """The run and each stage have p50, p95 and maximum, and a row of the page."""
    page, found = PAGE.read_text(), set()
    for properties in _widgets_of(body, "metric"):
        first, *others = metrics_of(properties)
        if properties["view"] == "timeSeries" and first.name.endswith(("Duration", "Delay")):
            assert {one.options["stat"] for one in (first, *others)} == {"p50", "p95", "Maximum"}
            assert f"| {properties['title']} | `{first.name}` |" in page
            found.add(first.name)
    assert found == {name for name in METRICS if name.endswith(("Duration", "Delay"))}


def test_failures_by_reason_are_asked_of_logs(body: dict[str, Any]) -> None:
    """The query covers the logs of all functions that report failures."""
    for title, message in (
        ("Failures by reason", "failures"),
        ("Last 20 runs", "archive"),
        ("Last runs that did not complete", "archive"),
    ):
        query = _titled(body, title)["query"]
        assert f'filter message = "{message}"' in query
        assert re.findall(r"SOURCE '<Functions(\w+)Logs", query) == ["Settle", "Intake", "Plan"]


def test_the_last_runs_have_what_the_functions_log(
    body: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """Each column of the table is a field of the line that ends a run."""
    caplog.set_level(logging.INFO, SERVICE)
    record_archive(replace(REPORT, cost=0.25))
    metrics.clear_metrics()
    (record,) = caplog.records
    columns = re.search(
        r"fields @timestamp, correlation_id as run, (.+)", _titled(body, "Last 20 runs")["query"]
    )
    assert columns is not None
    assert [name for name in columns[1].split(", ") if not hasattr(record, name)] == []


def test_throttles_queues_and_executions(dev: Synthesized, body: dict[str, Any]) -> None:
    """Throttles are drawn for each function, and every dead-letter queue and bad end is."""
    for title in ("Lambda throttles", "Function errors", "Functions at once"):
        assert {one.options["label"] for one in metrics_of(_titled(body, title))} == FUNCTIONS
    assert _names(body, "S3 throttles") == {"S3Throttles"}
    assert _names(body, "Queue: age of the oldest message") == {"ApproximateAgeOfOldestMessage"}
    assert _names(body, "Queue: messages") == {
        "ApproximateNumberOfMessagesVisible",
        "ApproximateNumberOfMessagesNotVisible",
    }
    ends = ("Started", "Succeeded", "Failed", "TimedOut", "Aborted")
    assert _names(body, "Executions") == {f"Executions{end}" for end in ends}
    dead = [one.dimensions["QueueName"] for one in metrics_of(_titled(body, "Dead letters"))]
    queues = dev.resources("AWS::SQS::Queue")
    intake = next(name for name in queues if name.startswith("IntakeQueue"))
    assert sorted(dead) == sorted(f"<{name}.QueueName>" for name in queues.keys() - {intake})


def test_cost_is_priced_like_a_forecast(dev: Synthesized, body: dict[str, Any]) -> None:
    """Requests, functions and transitions have the prices of the estimate."""
    rows = _expressions(_titled(body, "Cost, estimated at us-east-1")["metrics"])
    second = dev.environment.functions.extract.memory / 1_024 * rates.PRICE_LAMBDA_GB_SECOND
    call = rates.PRICE_LAMBDA_REQUEST + 2 * rates.PRICE_STANDARD_TRANSITION
    logs = rates.LOG_BYTES + 2 * rates.TRANSITION_LOG_BYTES
    call += logs * rates.PRICE_LOG_BYTE
    prices = [rates.PRICE_S3_WRITE, rates.PRICE_S3_READ, second, call]
    found = rows["S3 requests"] + " + " + rows["extract function"]
    names = r"s3_writes \* (\S+) \+ s3_reads \* (\S+) "
    names += r"\+ extract_ms / 1000 \* (\S+) \+ extract_calls \* (\S+)"
    match = re.fullmatch(names, found)
    assert match is not None
    assert [float(price) for price in match.groups()] == pytest.approx(prices)
    assert {f"{name} function" for name in FUNCTIONS} <= rows.keys()


def test_page_explains_every_tile(dev: Synthesized, body: dict[str, Any]) -> None:
    """docs/howto/dashboard.md names each tile and each stage, and counts what is paid for."""
    page = PAGE.read_text()
    titles = [one["properties"].get("title") for one in body["widgets"]]
    graphs = {"Members", "Bytes", "Requests to S3", "PUT latency"}  # in one sentence
    for title in {title for title in titles if title} - graphs:
        known = title.partition(", estimated")[0] if title.startswith("Cost") else title
        assert f"| {title} |" in page or f"**{known}**" in page, title
    for question in (one["markdown"] for one in _widgets_of(body, "text")[1:]):
        assert f"\n{question}\n" in page
    assert f"the {len(dev.resources('AWS::CloudWatch::Alarm'))} alarms" in page
    assert f"the {len(METRICS)} metrics" in page


def _expressions(rows: list[list[Any]]) -> dict[str, str]:
    return {row[-1]["label"]: row[-1]["expression"] for row in rows if "expression" in row[-1]}


def _alarm_names(made: Synthesized) -> list[str]:
    prefix = f"{made.environment.stack.name}-"
    given = [one["AlarmName"] for one in made.resources("AWS::CloudWatch::Alarm").values()]
    assert all(name.startswith(prefix) for name in given)
    return [name.removeprefix(prefix) for name in given]


@pytest.fixture(scope="module")
def page() -> str:
    return PAGE.read_text()


def _rows(page: str, header: str) -> list[str]:
    (table,) = re.findall(rf"^\| {header} \|.*\n\|[ |-]+\n((?:\|.*\n)+)", page, re.MULTILINE)
    return [line.split("|")[1].strip() for line in table.splitlines()]


def test_alarms(dev: Synthesized) -> None:
    """Each alarm watches a metric that exists and says what to do."""
    alarms = dev.resources("AWS::CloudWatch::Alarm")
    assert len(alarms) == 13
    for properties in alarms.values():
        assert len(properties["AlarmDescription"]) > 80
        assert properties["TreatMissingData"] == "notBreaching"
        if properties["Namespace"] == NAMESPACE:
            assert properties["MetricName"] in METRICS
            assert {one["Name"] for one in properties["Dimensions"]} == {"service", "environment"}


def test_intake_that_stops_is_told(dev: Synthesized) -> None:
    """Archives that wait for a quarter of an hour, or that Lambda refuses, ring."""
    waits = dev.properties("AWS::CloudWatch::Alarm", "AlarmsArchivesWait")
    assert waits["MetricName"] == "ApproximateAgeOfOldestMessage"
    assert (waits["Period"] * waits["EvaluationPeriods"], waits["Threshold"]) == (900, 900)
    throttled = dev.properties("AWS::CloudWatch::Alarm", "AlarmsIntakeThrottled")
    assert (throttled["MetricName"], throttled["EvaluationPeriods"]) == ("Throttles", 3)


def test_what_passes_rings_after_an_hour(dev: Synthesized) -> None:
    """S3 grows its partitions within minutes, and two runs may share too few workers."""
    for name in ("S3Throttling", "ExtractThrottled"):
        alarm = dev.properties("AWS::CloudWatch::Alarm", f"Alarms{name}")
        assert alarm["Period"] * alarm["EvaluationPeriods"] == 3_600
        assert alarm["Statistic"] == "Sum"


def test_alarms_that_are_chosen(dev: Synthesized, options: Synthesized) -> None:
    """Alarms for what somebody did or sent are made only where they are named."""
    chosen = {"AbortedRuns", "RejectedArchives", "SourcesNotFinished"}
    assert {*_alarm_names(options)} - {*_alarm_names(dev)} == chosen


def test_page_has_a_row_for_each_alarm(options: Synthesized, page: str) -> None:
    """The table of the page and the alarms of the template are the same."""
    assert sorted(_rows(page, "alarm")) == sorted(f"`{name}`" for name in _alarm_names(options))


def test_page_has_a_row_for_each_queue(dev: Synthesized, page: str) -> None:
    """The outputs of the dead-letter queues are all in the page's table."""
    told = set(re.findall(r"`(\w+)`", " ".join(_rows(page, "output"))))
    queues = {
        name
        for name, output in dev.template["Outputs"].items()
        if re.search(r"IntakeDeadLetters|IntakeUndelivered|IntakeFailed", str(output["Value"]))
    }
    assert told == queues
    assert len(queues) == 5


def test_outputs_that_are_named_exist(dev: Synthesized, page: str) -> None:
    """Every output that the page or an alarm's description names is an output of the stack."""
    asked = set(re.findall(r"OutputKey=='(\w+)'", page))
    asked |= set(re.findall(r"`(\w+(?:Url|Arn))`", page))
    for alarm in dev.resources("AWS::CloudWatch::Alarm").values():
        asked |= set(re.findall(r"\b\w+(?:Url|Arn)\b", alarm["AlarmDescription"]))
    assert asked
    assert asked <= set(dev.template["Outputs"])


def test_email_of_alarms(options: Synthesized) -> None:
    """An address and a topic of the environment are notified of every alarm, not of its end."""
    (subscription,) = options.resources("AWS::SNS::Subscription").values()
    assert subscription["Endpoint"] == "on-call@example.com"
    for alarm in options.resources("AWS::CloudWatch::Alarm").values():
        (_, topic) = alarm["AlarmActions"]
        assert topic == TOPIC
        assert "OKActions" not in alarm  # a new alarm is OK at once: 13 messages a deployment


def test_alarms_that_tell_nobody_are_said(dev: Synthesized) -> None:
    """Without an address the synthesis warns, and names the setting."""
    written = (dev.path.parent / f"{dev.path.name.split('.')[0]}.metadata.json").read_text()
    assert "alarms of dev notify nobody: set alarms.email or alarms.topic" in written


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
