"""Which end of a run says how fast the pipeline is, and what is kept of the others."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from s3unzip.aws.ending.failures import Ending, note_failure

from s3unzip import run_files
from s3unzip.aws.telemetry import metrics, record_archive
from s3unzip.errors import ServiceFaultError
from s3unzip.model import Location, Options, Report, Verdict
from s3unzip.runs.records import RunRecords
from tests.memory import MemoryWork

if TYPE_CHECKING:
    from collections.abc import Iterator

DETAIL = {"name": "run", "status": "FAILED", "error": "States.Runtime", "input": "{...}"}
REPORT = Report(
    run="run",
    verdict=Verdict.COMPLETED,
    source=Location("s3", "in", "a.zip"),
    pin=None,
    destination=Location("s3", "out", ""),
    options=Options(),
    event_time=1_000.0,
    started=1_001.0,
    finished=700_000.0,
)


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    """No test leaves metrics to the next one."""
    metrics.clear_metrics()
    yield
    metrics.clear_metrics()


def test_a_redriven_run_has_ended_before() -> None:
    """After a reported failure, no later end is the first one."""
    work = RunRecords(MemoryWork())
    assert Ending(work, "run", "run").is_first
    note_failure(work, DETAIL)
    assert not Ending(work, "run", "run").is_first


def test_a_retry_is_never_the_first_end() -> None:
    """An execution that is named after a retry comes after the run's own."""
    assert not Ending(RunRecords(MemoryWork()), "run", "run-retry-0001").is_first


def test_the_report_of_an_aborted_execution_is_not_written_late() -> None:
    """A function of an execution whose abort was reported meanwhile ends without a report."""
    work = RunRecords(MemoryWork())
    ending, of_a_retry = Ending(work, "run", "run"), Ending(work, "run", "run-retry-0001")
    ending.check()
    note_failure(work, DETAIL)
    with pytest.raises(ServiceFaultError, match="ended while this function made its report"):
        ending.check()
    of_a_retry.check()
    Ending(work, "run", "run").check()  # of the redriven execution


def test_how_an_execution_failed_is_kept() -> None:
    """Its error is on record without its input, and a redrive may begin."""
    work = MemoryWork()
    work.write(run_files.STOP, [b"{}"])
    note_failure(RunRecords(work), DETAIL)
    kept = json.loads(work.read(run_files.FAILED))
    assert kept == {"name": "run", "status": "FAILED", "error": "States.Runtime"}
    assert list(work.names(run_files.STOP)) == []


@pytest.mark.parametrize("first", [True, False])
def test_only_the_first_end_is_measured(first: bool) -> None:  # noqa: FBT001 - parametrized
    """A run that is redriven days later is not a slow archive."""
    record_archive(REPORT, first=first)
    assert ("ArchiveDuration" in metrics.metric_set) is first
