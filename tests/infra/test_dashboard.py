"""The dashboard: what it draws, in which order."""

import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from infra.reasons import text_of
from s3unzip import rates
from s3unzip.aws.telemetry import metrics, record_archive
from s3unzip.metric_names import METRICS, NAMESPACE, SERVICE
from tests.infra.templates import Synthesized
from tests.unit.aws.samples import REPORT

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
        pairs = zip(above[2::2], above[3::2], strict=True)
        yield DrawnMetric(above[0], above[1], dict(pairs), options)


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
    assert expressions(lines) == expressions(dollars[1:])


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
    query = _titled(body, "Last 20 runs")["query"]
    columns = re.search(r"fields @timestamp, correlation_id as run, (.+)", query)
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
    rows = expressions(_titled(body, "Cost, estimated at us-east-1")["metrics"])
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


def expressions(rows: list[list[Any]]) -> dict[str, str]:
    """Return the expressions among the rows of a widget by their labels."""
    return {row[-1]["label"]: row[-1]["expression"] for row in rows if "expression" in row[-1]}
