"""The dashboard, the alarms and the state machine of the template."""

import json
import logging
import os
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import botocore.session
import pytest
from msgspec.structs import replace

from infra import bundle, reasons
from s3unzip import errors, model, rates
from s3unzip.aws.executions import INLINE_ROUNDS
from s3unzip.aws.telemetry import add_archive_metrics, metrics
from s3unzip.settings import MAX_VALUES, METRICS, NAMESPACE, SERVICE
from s3unzip.settling.loop import MAX_IDLE_ROUNDS
from tests.infra.conftest import Synthesized
from tests.simulation.services import DEFINITION
from tests.support import assemblies, reports

FUNCTIONS = {"intake", "plan", "extract", "settle"}
OF_STAGES = ("Duration", "Delay")  # ends of metrics
ENDS = ("Started", "Succeeded", "Failed", "TimedOut", "Aborted")  # of executions
PAGE = (bundle.ROOT / "docs" / "howto" / "dashboard.md").read_text()


class DrawnMetric(NamedTuple):
    """One row of a metric widget, with its values spelled out."""

    namespace: str
    name: str
    dimensions: dict[str, str]
    options: dict[str, Any]


@pytest.fixture(scope="module")
def body(dev: Synthesized) -> Any:
    return json.loads(reasons.text_of(dev.only("AWS::CloudWatch::Dashboard")["DashboardBody"]))


def test_each_region_has_a_dashboard_of_its_own(dev: Synthesized) -> None:
    """An account has its dashboards in all regions: one name in two of them would be one."""
    name = reasons.text_of(dev.only("AWS::CloudWatch::Dashboard")["DashboardName"])
    assert name == "s3unzip-dev-<AWS::Region>"
    url = reasons.text_of(dev.template["Outputs"]["DashboardUrl"]["Value"])
    assert url.endswith(f"#dashboards/dashboard/{name}")


def _widgets_of(body: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [one["properties"] for one in body["widgets"] if one["type"] == kind]


def metrics_of(properties: dict[str, Any]) -> Iterator[DrawnMetric]:
    """Yield the metrics of a widget; ``.`` repeats what the row above has."""
    above: list[str] = []
    for row in properties["metrics"]:
        *names, options = row if isinstance(row[-1], dict) else (*row, {})
        if names:  # an expression has none
            above = [above[at] if one == "." else one for at, one in enumerate(names)]
            dimensions = dict(zip(above[2::2], above[3::2], strict=True))
            yield DrawnMetric(above[0], above[1], dimensions, options)


def _titled(body: dict[str, Any], title: str) -> dict[str, Any]:
    return next(
        one["properties"] for one in body["widgets"] if one["properties"].get("title") == title
    )


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
    first = [one["properties"] for one in body["widgets"] if one["y"] == 0]
    assert {(one["view"], one["setPeriodToTimeRange"]) for one in first} == {("singleValue", True)}
    (time,) = metrics_of(_titled(body, "Put to done (s)"))
    assert (time.name, time.options["stat"]) == ("ArchiveDuration", "p95")
    dollars = _titled(body, "Dollars, estimated at us-east-1")["metrics"]
    lines = _titled(body, "Cost, estimated at us-east-1")["metrics"]
    assert set(dollars[0][0]["expression"].split(" + ")) == FUNCTIONS | {"requests", "runs"}
    assert _expressions(lines) == _expressions(dollars[1:])


def test_alarms_and_advice_follow(dev: Synthesized, body: dict[str, Any]) -> None:
    """The second row has the status of every alarm, and a text that names each once."""
    second = {one["type"]: one["properties"] for one in body["widgets"] if one["y"] == 4}
    assert [*second] == ["alarm", "text"]
    alarms, text = dev.resources("AWS::CloudWatch::Alarm"), second["text"]["markdown"]
    assert second["alarm"]["alarms"] == [f"<{name}.Arn>" for name in alarms]
    links = re.findall(r"\[(\w+)\]\(#alarmsV2:alarm/<(\w+)>\)", text)
    assert sorted((f"s3unzip-dev-{name}", target) for name, target in links) == sorted(
        (alarm["AlarmName"], logical) for logical, alarm in alarms.items()
    )
    assert [one for one in alarms.values() if one["AlarmDescription"] not in text] == []


def test_order(body: dict[str, Any]) -> None:
    """Failures come before queues, queues before durations, cost last."""
    places = {one["properties"].get("title"): one["y"] for one in body["widgets"]}
    first = ("Archives", "Alarms", "Last 20 runs", "Failures by reason", "Queue: messages")
    rows = [places[title] for title in (*first, "Put to done", "Bytes", "Function errors")]
    assert rows == sorted(set(rows))
    assert all(one["x"] + one["width"] <= 24 for one in body["widgets"])
    assert len(body["widgets"]) <= 500  # of CloudWatch


def test_every_stage_has_its_spread(body: dict[str, Any]) -> None:
    """The run and each stage have p50, p95 and maximum, and a row of the page."""
    drawn = {
        (properties["title"], next(metrics_of(properties)).name): {
            one.options.get("stat") for one in metrics_of(properties)
        }
        for properties in _widgets_of(body, "metric")
        if properties["view"] == "timeSeries"
    }
    stages = {names: stats for names, stats in drawn.items() if names[1].endswith(OF_STAGES)}
    assert {name for _, name in stages} == {name for name in METRICS if name.endswith(OF_STAGES)}
    assert [stats for stats in stages.values() if stats != {"p50", "p95", "Maximum"}] == []
    assert [names for names in stages if f"| {names[0]} | `{names[1]}` |" not in PAGE] == []


@pytest.mark.parametrize(
    ("title", "message"),
    [
        ("Failures by reason", "failures"),
        ("Last 20 runs", "archive"),
        ("Last runs that did not complete", "archive"),
    ],
)
def test_failures_by_reason_are_asked_of_logs(
    body: dict[str, Any], title: str, message: str
) -> None:
    """The query covers the logs of all functions that report failures."""
    query = _titled(body, title)["query"]
    assert f'filter message = "{message}"' in query
    assert re.findall(r"SOURCE '<Functions(\w+)Logs", query) == ["Settle", "Intake", "Plan"]


def test_the_last_runs_have_what_the_functions_log(
    body: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """Each column of the table is a field of the line that ends a run."""
    caplog.set_level(logging.INFO, SERVICE)
    add_archive_metrics(replace(reports.REPORT, cost=0.25))
    metrics.clear_metrics()
    (record,) = caplog.records
    (columns,) = re.findall(
        r"fields @timestamp, correlation_id as run, (.+)", _titled(body, "Last 20 runs")["query"]
    )
    assert [name for name in columns.split(", ") if not hasattr(record, name)] == []


@pytest.mark.parametrize(
    ("title", "names"),
    [
        ("Archives", {name for name in METRICS if name.startswith("Archives")}),
        ("Members written", {"MembersExtracted"}),
        ("S3 throttles", {"S3Throttles"}),
        ("Queue: age of the oldest message", {"ApproximateAgeOfOldestMessage"}),
        (
            "Queue: messages",
            {"ApproximateNumberOfMessagesVisible", "ApproximateNumberOfMessagesNotVisible"},
        ),
        ("Executions", {f"Executions{end}" for end in ENDS}),
    ],
)
def test_a_graph_has_its_metrics(body: dict[str, Any], title: str, names: set[str]) -> None:
    """What is shown under a title is drawn, and nothing else is."""
    assert {metric.name for metric in metrics_of(_titled(body, title))} == names


def test_throttles_and_dead_letters(dev: Synthesized, body: dict[str, Any]) -> None:
    """Throttles are drawn for each function, and every dead-letter queue is."""
    for title in ("Lambda throttles", "Function errors", "Functions at once"):
        assert {one.options["label"] for one in metrics_of(_titled(body, title))} == FUNCTIONS
    dead = [one.dimensions["QueueName"] for one in metrics_of(_titled(body, "Dead letters"))]
    queues = [f"<{name}.QueueName>" for name in dev.resources("AWS::SQS::Queue")]
    assert sorted(dead) == sorted(one for one in queues if not one.startswith("<IntakeQueue"))


def test_cost_is_priced_like_a_forecast(dev: Synthesized, body: dict[str, Any]) -> None:
    """Requests, functions and transitions have the prices of the estimate."""
    rows = _expressions(_titled(body, "Cost, estimated at us-east-1")["metrics"])
    second = dev.environment.functions.extract.memory / 1_024 * rates.PRICE_LAMBDA_GB_SECOND
    logs = (rates.LOG_BYTES + 2 * rates.TRANSITION_LOG_BYTES) * rates.PRICE_LOG_BYTE
    call = rates.PRICE_LAMBDA_REQUEST + 2 * rates.PRICE_STANDARD_TRANSITION + logs
    (prices,) = re.findall(
        r"^s3_writes \* (\S+) \+ s3_reads \* (\S+) "
        r"\+ extract_ms / 1000 \* (\S+) \+ extract_calls \* (\S+)$",
        rows["S3 requests"] + " + " + rows["extract function"],
    )
    assert [float(price) for price in prices] == pytest.approx(
        [rates.PRICE_S3_WRITE, rates.PRICE_S3_READ, second, call]
    )
    assert {f"{name} function" for name in FUNCTIONS} <= rows.keys()


def test_page_explains_every_tile(dev: Synthesized, body: dict[str, Any]) -> None:
    """docs/howto/dashboard.md names each tile and each stage, and counts what is paid for."""
    titles = {one["properties"].get("title", "") for one in body["widgets"]}
    graphs = {"Members", "Bytes", "Requests to S3", "PUT latency"}  # in one sentence
    for title in titles - graphs - {""}:
        tile = re.sub("^(Cost), estimated.*", r"\1", title)
        assert f"| {title} |" in PAGE or f"**{tile}**" in PAGE, title
    questions = [one["markdown"] for one in _widgets_of(body, "text")[1:]]
    counts = (f"the {len(_alarm_names(dev))} alarms", f"the {len(METRICS)} metrics")
    assert [text for text in (*questions, *counts) if text not in PAGE] == []


def _expressions(rows: list[list[Any]]) -> dict[str, str]:
    return {row[-1]["label"]: row[-1]["expression"] for row in rows if "expression" in row[-1]}


def _alarm_names(made: Synthesized) -> list[str]:
    prefix = f"{made.environment.stack.name}-"
    given = [one["AlarmName"] for one in made.resources("AWS::CloudWatch::Alarm").values()]
    assert all(name.startswith(prefix) for name in given)
    return [name.removeprefix(prefix) for name in given]


def _rows(header: str) -> list[str]:
    (table,) = re.findall(rf"^\| {header} \|.*\n\|[ |-]+\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    return [line.split("|")[1].strip() for line in table.splitlines()]


def test_alarms(dev: Synthesized) -> None:
    """Each alarm watches a metric that exists and says what to do. Optional alarms are not made."""
    alarms = dev.resources("AWS::CloudWatch::Alarm").values()
    assert [one["TreatMissingData"] for one in alarms] == ["notBreaching"] * 13
    assert min(len(one["AlarmDescription"]) for one in alarms) > 80
    ours = [one for one in alarms if one["Namespace"] == NAMESPACE]
    assert {one["MetricName"] for one in ours} <= METRICS.keys()
    assert [{each["Name"] for each in one["Dimensions"]} for one in ours] == [
        {"service", "environment"}
    ] * len(ours)


def test_page_has_a_row_for_each_alarm_and_queue(dev: Synthesized, options: Synthesized) -> None:
    """The tables of the page have the template's alarms, and the outputs of dead-letter queues."""
    assert sorted(_rows("alarm")) == sorted(f"`{name}`" for name in _alarm_names(options))
    queues = {
        name
        for name, output in dev.template["Outputs"].items()
        if re.search(r"IntakeDeadLetters|IntakeUndelivered|IntakeFailed", str(output["Value"]))
    }
    assert (set(re.findall(r"`(\w+)`", " ".join(_rows("output")))), len(queues)) == (queues, 5)


def test_outputs_that_are_named_exist(dev: Synthesized) -> None:
    """Every output that the page or an alarm's description names is an output of the stack."""
    outputs = {
        *re.findall(r"OutputKey=='(\w+)'", PAGE),
        *re.findall(r"`(\w+(?:Url|Arn))`", PAGE),
        *(
            name
            for alarm in dev.resources("AWS::CloudWatch::Alarm").values()
            for name in re.findall(r"\b\w+(?:Url|Arn)\b", alarm["AlarmDescription"])
        ),
    }
    assert set() < outputs <= set(dev.template["Outputs"])


def test_every_partition_has_a_console(dev: Synthesized) -> None:
    """CloudFormation refuses a template whose mapping lacks its partition; isolated ones differ."""
    partitions = set(botocore.session.get_session().get_available_partitions())
    (hosts,) = dev.template["Mappings"].values()
    assert {name for name in partitions if "-iso" not in name} == set(hosts)


def test_email_of_alarms(options: Synthesized) -> None:
    """An address and a topic of the environment are notified of every alarm, not of its end."""
    alarms = options.resources("AWS::CloudWatch::Alarm").values()
    assert {(len(one["AlarmActions"]), one["AlarmActions"][1]) for one in alarms} == {
        (2, assemblies.TOPIC)
    }
    # A new alarm is OK at once: 13 messages a deployment.
    assert not [one for one in alarms if "OKActions" in one]


def test_alarms_that_tell_nobody_are_said(dev: Synthesized) -> None:
    """Without an address the synthesis warns, and names the setting."""
    written = (dev.path.parent / f"{dev.path.name.split('.')[0]}.metadata.json").read_text()
    assert "alarms of dev notify nobody: set alarms.email or alarms.topic" in written


# The errors of a function without free concurrency, and of one whose network Lambda makes anew.
NOT_YET = [
    "Lambda.TooManyRequestsException",
    "Lambda.ResourceNotReadyException",
    "Lambda.ENINotReadyException",
    "Lambda.CodeArtifactUserPendingException",
    "Lambda.ResourceConflictException",
]
OF_AWS = {
    *NOT_YET,
    "Lambda.ClientExecutionTimeoutException",
    "Lambda.ServiceException",
    "Lambda.AWSLambdaException",
    "Lambda.SdkClientException",
    "States.TaskFailed",
    "States.ALL",
    "States.ItemReaderFailed",
    "States.ResultWriterFailed",
}


States = dict[str, dict[str, Any]]


@pytest.fixture
def states(dev: Synthesized) -> States:
    """All states, those inside of a Map too."""
    states = dev.definition()["States"]
    inner = [
        state["ItemProcessor"]["States"] for state in states.values() if "ItemProcessor" in state
    ]
    return {name: state for some in (states, *inner) for name, state in some.items()}


def test_transitions(dev: Synthesized, states: States) -> None:
    """A run of one round takes the transitions that an estimate counts."""
    names = ("Planned?", "Plan", "Next?", "Few tasks", "Settle", "Next?", "Done")
    exits = [
        {choice["Next"] for choice in states[name].get("Choices", ())}
        | {states[name].get("Next"), states[name].get("Default")}
        for name in names
    ]
    assert [name for name, after in zip(names[1:], exits, strict=False) if name not in after] == []
    assert (dev.definition()["StartAt"], len(names)) == (names[0], rates.TRANSITIONS)


def test_data_is_what_the_functions_return(states: States) -> None:
    """Each path of the definition is a field of `Next` or the key of the list.

    Steps get all of the data and give all of it.
    """
    few, many = states["Few tasks"], states["Many tasks"]
    paths = {
        *(few["ItemsPath"], few["MaxConcurrencyPath"], many["MaxConcurrencyPath"]),
        *(few["ItemSelector"]["run.$"], many["ItemReader"]["Parameters"]["Key.$"]),
    }
    assert {path.removeprefix("$.") for path in paths} <= {*model.Next.__struct_fields__, "list"}
    given = [name for name, one in states.items() if "Payload.$" in one.get("Parameters", ())]
    assert (
        {name: states[name]["Parameters"]["Payload.$"] for name in given},
        [states[name]["OutputPath"] for name in ("Plan", "Settle")],
    ) == (
        dict.fromkeys(("Plan", "Extract", "Extract one of many", "Settle"), "$"),
        ["$.Payload"] * 2,
    )


def test_every_error_name_exists(states: States) -> None:
    """The machine ends a task at each error that a retry would meet again, and knows no others."""
    names = {
        name
        for state in states.values()
        for retry in state.get("Retry", []) + state.get("Catch", [])
        for name in retry["ErrorEquals"]
    }
    tree = {
        error
        for error in vars(errors).values()
        if isinstance(error, type) and issubclass(error, errors.S3UnzipError)
    }
    assert names - OF_AWS == {error.__name__ for error in tree if not error.retryable}


def test_retries(states: States) -> None:
    """Faults of Lambda are tried again for minutes, and what it cannot invoke yet for hours."""
    tasks = {name: one for name, one in states.items() if one["Type"] == "Task"}
    for name, state in tasks.items():
        by_error = {error: one for one in state["Retry"] for error in one["ErrorEquals"]}
        faults, full = by_error["Lambda.ServiceException"], by_error[NOT_YET[0]]
        assert faults["IntervalSeconds"] * (2 ** faults["MaxAttempts"] - 1) >= 120
        assert by_error["UsageError"]["MaxAttempts"] == 0
        waits = (5 * full["BackoffRate"] ** n for n in range(full["MaxAttempts"]))
        assert [full[name] for name in ("ErrorEquals", "JitterStrategy", "IntervalSeconds")] == [
            NOT_YET,
            "FULL",
            5,
        ]
        assert sum(min(wait, full["MaxDelaySeconds"]) for wait in waits) / 2 >= 7_200, name


def test_a_history_is_bounded(states: States) -> None:
    """An execution of 16 rounds fits into its history, if every retrier is used up in each round.

    It holds 25,000 events: a quota of Step Functions.
    """
    rounds = 16
    attempts = {
        name: 1 + sum(retry["MaxAttempts"] for retry in state["Retry"])
        for name, state in states.items()
        if "Retry" in state
    }
    # A state is entered and exited; an attempt is scheduled, started and ended. An iteration of an
    # inline Map is started, its task and the state for what is left are entered and exited, and it
    # succeeds. A Map is entered, started, ended and exited; a run of a distributed one has two.
    iteration = 6 + 3 * attempts["Extract"]
    events = {
        "begun and ended": 2,
        "Plan": 2 + 3 * attempts["Plan"],
        "Settle": rounds * (2 + 3 * attempts["Settle"]),
        "Few tasks": INLINE_ROUNDS * (4 + MAX_VALUES["max_few_tasks"] * iteration),
        "Many tasks": (rounds - INLINE_ROUNDS) * (4 + 2 * attempts["Many tasks"]),
        "Planned?, and Next? of each round": 2 * (rounds + 2),
    }
    assert 20_000 < sum(events.values()) < 25_000
    assert MAX_IDLE_ROUNDS > INLINE_ROUNDS  # a run without progress is in a Distributed Map, too


def test_results_stay_out_of_the_data(states: States) -> None:
    """A task's output is empty; results of children go to the work bucket, beside their list."""
    many = states["Many tasks"]
    outputs = [states[name]["OutputPath"] for name in ("Extract", "Extract one of many")]
    assert [*outputs, many["ResultPath"]] == [None] * 3
    assert many["ResultWriter"]["Parameters"] == {
        "Bucket": many["ItemReader"]["Parameters"]["Bucket"],
        "Prefix.$": "States.Format('{}-result', $.list)",
    }
    assert many["ItemProcessor"]["ProcessorConfig"]["ExecutionType"] == "STANDARD"
    # It reads the list and writes the result itself; a fault of S3 is retried.
    assert [(retry["ErrorEquals"], retry["MaxAttempts"] > 0) for retry in many["Retry"]] == [
        (["States.ItemReaderFailed", "States.ResultWriterFailed"], True)
    ]


def test_rights_of_the_state_machine(dev: Synthesized) -> None:
    """Its role calls the three functions of a run, and reads and writes what rounds have."""
    rights = dev.policy("WorkflowRunsRoleDefaultPolicy")
    called = {where for action, where in rights if action == "lambda:InvokeFunction"}
    assert (
        {one.split("Functions")[1][:4] for one in called},
        {where for action, where in rights if action.startswith("s3:")},
    ) == ({"Plan", "Extr", "Sett"}, {"<StorageWork.Arn>/runs/*/rounds/*"})


def test_the_simulation_has_the_definition(dev: Synthesized) -> None:
    """A change of the state machine shows in its snapshot (UPDATE_SNAPSHOTS=1 writes it)."""
    text = json.dumps(dev.definition(), indent=1) + "\n"
    if os.environ.get("UPDATE_SNAPSHOTS"):
        DEFINITION.write_text(text)
    assert DEFINITION.read_text() == text
