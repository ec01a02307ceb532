"""Archives without a verdict are found by comparing the bucket with the runs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from tests.unit.handlers.pipeline import Functions, object_created

from s3unzip.cli.runs import report_of
from s3unzip.errors import NotFoundError, StorageError
from s3unzip.operate.reconcile import reconcile, start
from tests.split_zips import build_split, part_names
from tests.unit.operate.test_runs import end, put
from tests.zips import Entry, build

if TYPE_CHECKING:
    from collections.abc import Callable

    from s3unzip.operate.runs import DeployedRuns

ARCHIVE = build(Entry("a", b"a" * 50))


def test_every_archive_has_its_verdict(
    functions: Functions, open_runs: Callable[[], DeployedRuns]
) -> None:
    """Of a run that ended nothing is told; one that goes on is counted."""
    done = put(functions, "done.zip")
    functions.extract(done)
    functions.report(done)
    put(functions, "going.zip")
    functions.account.put("other.txt", b"starts nothing")
    found = reconcile(open_runs(), 0.0)
    assert (found.archives, found.running, found.unsettled) == (2, 1, ())


def test_a_run_between_two_rounds(
    functions: Functions, open_runs: Callable[[], DeployedRuns]
) -> None:
    """It is active although it has a report; if its execution has ended, it wants a redrive."""
    run, runs = put(functions, "a.zip"), open_runs()
    assert functions.report(run)["left"] == 1
    found = reconcile(runs, 0.0)
    assert (found.running, found.unsettled) == (1, ())
    with pytest.raises(NotFoundError, match="has no report yet; s3unzip watch"):
        report_of(run, runs)
    end(functions, run)
    (left,) = reconcile(runs, 0.0).unsettled
    assert (left.run, left.state) == (run, "not finished")
    with pytest.raises(NotFoundError, match="has no report yet; s3unzip resume"):
        report_of(run, runs)


def test_a_split_archive_has_its_verdict(
    functions: Functions, open_runs: Callable[[], DeployedRuns]
) -> None:
    """Its run is named by all of its parts, also before it has one."""
    parts = build_split(Entry("a", b"a" * 500), sizes=[200, 200])
    for name, part in zip(part_names("split", len(parts)), parts, strict=True):
        functions.account.put(name, part)
    (lost,) = reconcile(open_runs(), 0.0).unsettled
    assert (lost.source.key, lost.size) == ("split.zip", sum(map(len, parts)))
    assert functions.plan(object_created("split.zip")) == []
    assert functions.account.executions() == [lost.run]
    functions.plan_run(lost.run)
    functions.extract(lost.run)
    functions.report(lost.run)
    assert reconcile(open_runs(), 0.0).unsettled == ()


def test_a_lost_event_is_queued_again(
    functions: Functions, open_runs: Callable[[], DeployedRuns]
) -> None:
    """The planner takes what `start` queues, and then the archive has a run."""
    functions.account.put("lost.zip", ARCHIVE)
    runs = open_runs()
    found = reconcile(runs, 0.0)
    (lost,) = found.unsettled
    assert (lost.source.key, lost.state, lost.size) == ("lost.zip", "no run", len(ARCHIVE))
    assert start(runs, found.unsettled) == 1
    assert functions.plan() == []
    assert functions.account.executions() == [lost.run]


def test_a_run_that_did_not_end(
    functions: Functions, open_runs: Callable[[], DeployedRuns]
) -> None:
    """An execution that ended without a report wants a redrive, not another event."""
    run = put(functions, "a.zip")
    end(functions, run)
    (found,) = reconcile(open_runs(), 0.0).unsettled
    assert (found.run, found.state) == (run, "not finished")


def test_an_archive_that_was_put_back(
    functions: Functions, open_runs: Callable[[], DeployedRuns]
) -> None:
    """Its run ended as the other archive lay there, and its event starts no new run.

    Neither does the recheck that the run asked for, if it is done before the archive is put back.
    """
    run = put(functions, "a.zip")
    before = functions.account.client("s3").get_object(Bucket="arrivals", Key="a.zip")
    functions.account.put("a.zip", ARCHIVE + b"another")
    functions.extract(run)
    assert functions.report(run)["verdict"] == "SOURCE_CHANGED"
    (newer,) = reconcile(open_runs(), 0.0).unsettled
    assert (newer.run != run, newer.state) == (True, "no run")
    assert functions.plan() == []
    functions.account.put("a.zip", before["Body"].read())
    assert functions.plan(object_created("a.zip")) == []
    assert functions.account.executions() == [run]
    (found,) = reconcile(open_runs(), 0.0).unsettled
    assert (found.run, found.state) == (run, "put back")


def test_a_plan_that_never_started(
    functions: Functions, open_runs: Callable[[], DeployedRuns]
) -> None:
    """Records without an execution are of a planner that was killed."""
    functions.account.put("a.zip", ARCHIVE)
    runs = open_runs()
    (lost,) = reconcile(runs, 0.0).unsettled
    runs.records(lost.run).write_tasks([])
    (found,) = reconcile(runs, 0.0).unsettled
    assert found.state == "not finished"


def test_only_what_was_put_since(
    functions: Functions, open_runs: Callable[[], DeployedRuns]
) -> None:
    """Older archives are not looked at."""
    functions.account.put("old.zip", ARCHIVE)
    assert reconcile(open_runs(), time.time() + 3_600).archives == 0


def test_an_ingest_bucket_that_is_gone(
    functions: Functions, open_runs: Callable[[], DeployedRuns]
) -> None:
    """The call that was refused is named."""
    functions.account.client("s3").delete_bucket(Bucket="arrivals")
    with pytest.raises(StorageError, match="s3:ListBucket: NoSuchBucket"):
        reconcile(open_runs(), 0.0)


def test_a_queue_that_is_gone(functions: Functions, open_runs: Callable[[], DeployedRuns]) -> None:
    """What cannot be queued is an error, not a number."""
    functions.account.put("lost.zip", ARCHIVE)
    runs = open_runs()
    found = reconcile(runs, 0.0)
    functions.account.client("sqs").delete_queue(QueueUrl=runs.outputs["QueueUrl"])
    with pytest.raises(StorageError, match="sqs:SendMessage"):
        start(runs, found.unsettled)


def test_an_archive_deleted_meanwhile(
    functions: Functions, open_runs: Callable[[], DeployedRuns]
) -> None:
    """A run whose archive was deleted after its event asks for nothing."""
    put(functions, "a.zip")
    functions.account.client("s3").delete_object(Bucket="arrivals", Key="a.zip")
    assert functions.plan(object_created("a.zip")) == []
    assert reconcile(open_runs(), 0.0).archives == 0
