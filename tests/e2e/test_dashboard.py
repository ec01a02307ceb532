"""The dashboard as it is deployed: valid, and about resources that exist."""

import json
import re
from typing import Any

import pytest

from embedded.pipeline import DeployedPipeline
from tests.infra.dashboards import dashboard_faults, metrics_of, widgets_of


@pytest.fixture(scope="module")
def body(pipeline: DeployedPipeline) -> dict[str, Any]:
    """The body that CloudWatch answers."""
    name = pipeline.outputs["DashboardUrl"].rsplit("/", 1)[-1]
    answer = pipeline.client("cloudwatch").get_dashboard(DashboardName=name)
    found: dict[str, Any] = json.loads(answer["DashboardBody"])
    return found


def test_it_is_valid(body: dict[str, Any]) -> None:
    """With all references resolved CloudWatch's limits hold."""
    assert dashboard_faults(body) == []


def test_its_alarms_exist(pipeline: DeployedPipeline, body: dict[str, Any]) -> None:
    """The status tile has the ARN of each alarm, the text a link to each name."""
    alarms = pipeline.client("cloudwatch").describe_alarms(AlarmNamePrefix="s3unzip-dev-")
    made = {one["AlarmName"]: one["AlarmArn"] for one in alarms["MetricAlarms"]}
    (status,) = widgets_of(body, "alarm")
    assert sorted(status["alarms"]) == sorted(made.values())
    text = widgets_of(body, "text")[0]["markdown"]
    assert set(re.findall(r"#alarmsV2:alarm/([\w-]+)\)", text)) == made.keys()


def test_its_resources_exist(pipeline: DeployedPipeline, body: dict[str, Any]) -> None:
    """Each function, queue, state machine and log group that it names exists."""
    functions = pipeline.client("lambda").list_functions()["Functions"]
    queues = pipeline.client("sqs").list_queues()["QueueUrls"]
    groups = pipeline.client("logs").describe_log_groups()["logGroups"]
    there = {one["FunctionName"] for one in functions}
    there |= {url.rsplit("/", 1)[-1] for url in queues}
    there |= {pipeline.outputs["StateMachineArn"]}
    named = {
        value
        for properties in widgets_of(body, "metric")
        for metric in metrics_of(properties)
        for name, value in metric.dimensions
        if name in {"FunctionName", "QueueName", "StateMachineArn"}
    }
    assert len(named) == 10  # four functions, five queues, one state machine
    assert named <= there
    asked = [
        group
        for log in widgets_of(body, "log")
        for group in re.findall(r"SOURCE '([^']+)'", log["query"])
    ]
    assert len(asked) == 6
    assert set(asked) <= {one["logGroupName"] for one in groups}
