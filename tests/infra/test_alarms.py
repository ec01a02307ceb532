"""The alarms of the template, and that docs/howto/dashboard.md tells of them as they are."""

import re
from pathlib import Path

import pytest

from s3unzip.metric_names import METRICS, NAMESPACE
from tests.infra.templates import Synthesized
from tests.support.assemblies import TOPIC

PAGE = Path(__file__).resolve().parents[2] / "docs" / "howto" / "dashboard.md"


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
