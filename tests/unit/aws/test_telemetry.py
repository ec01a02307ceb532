"""What the functions measure: each metric by name, unit and dimensions."""

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from s3unzip.aws.telemetry import (
    ENDS,
    metrics,
    record_archive,
    record_handover,
    record_plan,
    record_source,
    record_task,
    timed,
)
from s3unzip.metric_names import METRICS, NAMESPACE, SERVICE, Unit
from s3unzip.model import (
    Report,
    Requests,
    SourceAction,
    SourceResult,
    SourceState,
    TaskKind,
    TaskReport,
    Verdict,
)
from tests.unit.aws.samples import PLAN, REPORT, RUN

REQUESTS = Requests(get=5, head=1, put=3, list=2, part=4, throttled=7)
PLANNED = replace(PLAN, run=replace(RUN, event_time=1.0), requests=REQUESTS)
TASK = TaskReport(
    "batch-1", TaskKind.BATCH, members=3, extracted=3, requests=REQUESTS, put_seconds=0.14
)


def report_of(verdict: Verdict) -> Report:
    """Return the report of a run that took 10 s, 12 s after the archive was put."""
    return replace(REPORT, verdict=verdict, event_time=1_000.0, started=1_002.0, finished=1_012.0)


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    """No test leaves metrics to the next one."""
    metrics.clear_metrics()
    yield
    metrics.clear_metrics()


def emitted() -> dict[str, list[float]]:
    """Return the values of what was measured, after a look at units and dimensions."""
    line: dict[str, Any] = dict(metrics.serialize_metric_set())
    (directive,) = line["_aws"]["CloudWatchMetrics"]
    assert directive["Namespace"] == NAMESPACE
    assert sorted(directive["Dimensions"][0]) == ["environment", "service"]
    for metric in directive["Metrics"]:
        assert metric["Unit"] == METRICS[metric["Name"]]
    return {metric["Name"]: line[metric["Name"]] for metric in directive["Metrics"]}


def measure_all() -> None:
    """Measure a run with every step."""
    record_plan(PLANNED)
    record_task(TASK)
    record_handover()
    with timed("SettleDuration"):
        record_archive(report_of(Verdict.COMPLETED))
    record_source(SourceResult(SourceAction.DELETE, SourceState.DONE))


def test_every_metric_is_emitted() -> None:
    """A run with every step emits all that `METRICS` names."""
    measure_all()
    assert emitted().keys() == METRICS.keys()


@pytest.mark.parametrize(
    ("record", "names"),
    [
        (lambda: record_plan(PLANNED), {"PlanDuration", "QueueDelay", "MembersFailed"}),
        (
            lambda: record_task(TASK),
            {
                "TaskDuration",
                "MembersExtracted",
                "MembersFailed",
                "MembersUnchanged",
                "BytesWritten",
                "PutLatency",
            },
        ),
    ],
)
def test_steps_that_read_archives(record: Callable[[], None], names: set[str]) -> None:
    """Plan and extract each emit their own metrics, their bytes and their requests."""
    record()
    found = emitted()
    assert found.keys() == names | {"BytesRead", "ReadRequests", "WriteRequests", "S3Throttles"}
    assert (found["ReadRequests"], found["WriteRequests"]) == ([6.0], [9.0])
    assert found["S3Throttles"] == [7.0]


@pytest.mark.parametrize(("puts", "latency"), [(0, None), (4, [35.0])])
def test_mean_latency_of_puts(puts: int, latency: list[float] | None) -> None:
    """The latency is the mean of PUTs, parts and copies in milliseconds; without any, none."""
    record_task(replace(TASK, requests=Requests(put=puts)))
    assert METRICS["PutLatency"] is Unit.MILLISECONDS
    assert emitted().get("PutLatency") == latency


def test_plan_without_an_event() -> None:
    """Nothing waited in the queue."""
    record_plan(PLAN)
    assert "QueueDelay" not in emitted()


def test_durations_of_runs(caplog: pytest.LogCaptureFixture) -> None:
    """The duration counts from the event, and the failures are logged by reason."""
    caplog.set_level(logging.INFO, SERVICE)
    record_archive(replace(REPORT, event_time=60.0, reasons={"crc-mismatch": 2}))
    record_archive(REPORT)  # started by hand: no event, no duration
    record_archive(replace(REPORT, event_time=60.0))
    record_archive(replace(REPORT, event_time=60.0), first=False)  # resumed: no duration
    assert caplog.messages == ["archive", "failures", "archive", "archive", "archive"]
    assert emitted()["ArchiveDuration"] == [50.0, 50.0]


@pytest.mark.parametrize("verdict", Verdict)
def test_one_end_is_counted(verdict: Verdict) -> None:
    """The metric of the verdict is 1, the others are 0; the durations go with them."""
    record_archive(report_of(verdict))
    found = emitted()
    assert {name for name in ENDS.values() if found[name] == [1.0]} == {ENDS[verdict]}
    assert sum(found[name][0] for name in ENDS.values()) == 1.0
    assert (found["ArchiveDuration"], found["RunDuration"]) == ([12.0], [10.0])


def test_later_ends_have_no_duration() -> None:
    """The end of a resumed run is counted, and its durations are not measured."""
    record_archive(report_of(Verdict.COMPLETED), first=False)
    assert emitted().keys() == set(ENDS.values())


def test_a_step_that_fails_has_no_duration() -> None:
    """Only what ended well says how long the step takes."""
    with pytest.raises(ValueError, match="no link"), timed("SettleDuration"):
        raise ValueError("no link")
    assert metrics.metric_set == {}
