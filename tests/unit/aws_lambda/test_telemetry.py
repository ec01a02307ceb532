"""Metrics as CloudWatch reads them from the log."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from msgspec.structs import replace

from s3unzip.aws_lambda.telemetry import (
    SERVICE,
    metrics,
    record_archive,
    record_plan,
    record_task,
)
from s3unzip.model import (
    PlanSummary,
    Report,
    Request,
    Requests,
    TaskKind,
    TaskReport,
)
from tests.unit.aws_lambda.samples import PLAN, REPORT, RUN


def measured(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """Return the metrics that were added, as CloudWatch reads them from the log."""
    metrics.flush_metrics()
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines() if '"_aws"' in line]
    (line,) = lines
    names = [one["Name"] for one in line["_aws"]["CloudWatchMetrics"][0]["Metrics"]]
    return {name: line[name] for name in names}


@pytest.mark.parametrize(("puts", "latency"), [(0, None), (4, [500.0])])
def test_metrics_of_a_task(
    capsys: pytest.CaptureFixture[str], puts: int, latency: list[float] | None
) -> None:
    """The latency is the mean of the task's PUTs, parts and copies; without any there is none."""
    task = TaskReport(
        task="batch-0",
        kind=TaskKind.BATCH,
        members=3,
        extracted=2,
        failed=1,
        seconds=4.0,
        put_seconds=2.0,
        requests=Requests(put=puts, throttled=5),
    )
    record_task(task)
    found = measured(capsys)
    assert (found["MembersExtracted"], found["PutThrottles"]) == ([2.0], [5.0])
    assert found.get("PutLatency") == latency


def test_metrics_of_a_run(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """The duration counts from the event, and the failures are logged by reason."""
    caplog.set_level(logging.INFO, SERVICE)
    record_archive(replace(REPORT, event_time=60.0, reasons={"crc-mismatch": 2}))
    record_archive(REPORT)  # started by hand: no event, no duration
    record_archive(replace(REPORT, event_time=60.0))
    record_archive(replace(REPORT, event_time=60.0), first=False)  # redriven: no duration
    assert caplog.messages == ["archive", "failures", "archive", "archive", "archive"]
    assert measured(capsys)["ArchiveDuration"] == [50.0, 50.0]


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({"event_time": 1.0}, {"PlanDuration", "BytesRead", "MembersFailed", "QueueDelay"}),
        ({}, {"PlanDuration", "BytesRead", "MembersFailed"}),
    ],
)
@pytest.mark.parametrize("plan", [PLAN, REPORT])
def test_metrics_of_a_plan(
    capsys: pytest.CaptureFixture[str],
    plan: PlanSummary | Report,
    fields: dict[str, float],
    names: set[str],
) -> None:
    """A plan that was refused counts as one; without an event nothing waited in the queue."""
    record_plan(plan, Request(RUN.source, RUN.destination, **fields))  # type: ignore[arg-type]  # event_time alone
    assert set(measured(capsys)) == names
