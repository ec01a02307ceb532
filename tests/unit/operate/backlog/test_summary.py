"""One report of all archives of a backlog, at any moment."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from s3unzip.errors import AccessDeniedError
from s3unzip.model import Verdict, decode, encode
from s3unzip.operate.backlog import submitting, summary
from s3unzip.operate.backlog.records import BacklogRecords
from s3unzip.operate.backlog.summary import Summary
from s3unzip.operate.backlog.values import BacklogReport
from s3unzip.settings import Variable
from tests.servers import HttpServer
from tests.unit.operate.backlog.environment import BUCKET, make_archive
from tests.unit.operate.doctor.scripted import deny
from tests.unit.operate.test_runs import end

if TYPE_CHECKING:
    from s3unzip.operate.backlog.values import Backlog, BacklogProblem
    from tests.unit.operate.backlog.environment import Site


def look(site: Site, backlog: Backlog) -> BacklogReport:
    """Return the report of now."""
    return Summary(backlog, site.runs).look()


def spoil(body: bytes) -> bytes:
    """Return an archive of which one member is damaged."""
    spoilt = bytearray(body)
    spoilt[spoilt.index(b"m1.txt") + 8] ^= 0xFF
    return bytes(spoilt)


def test_archives_end_one_by_one(site: Site) -> None:
    """Before the end the exit code is 1; after it, everything is added up."""
    site.put(*(f"{n}.zip" for n in range(5)))
    backlog = site.submit(BUCKET)
    before = look(site, backlog)
    assert (before.ended, before.exit_code, before.queued, before.seconds) == (False, 1, 5, None)
    site.extract_queued()
    after = look(site, backlog)
    assert (after.ended, after.exit_code, after.queued) == (True, 0, 0)
    assert after.verdicts == {"COMPLETED": 5}
    assert (after.members, after.extracted, after.failed) == (15, 15, 0)
    assert after.bytes_out == 15 * 200
    assert after.cost > 0
    assert after.forecast_cost == backlog.forecast.dollars.expected
    assert after.problems == ()
    assert decode(encode(after), BacklogReport) == after


def test_the_highest_exit_code_counts(site: Site) -> None:
    """Archives with a problem are listed with the reason, and do not hide the others."""
    site.put("good.zip")
    site.put("damaged.zip", body=spoil(make_archive()))
    site.put("rejected.zip", body=b"no archive")
    backlog = site.submit(BUCKET)
    site.extract_queued()
    problems: list[BacklogProblem] = []
    report = Summary(backlog, site.runs, problems.append).look()
    assert report.verdicts == {"COMPLETED": 1, "COMPLETED_WITH_ERRORS": 1, "REJECTED": 1}
    assert report.exit_code == Verdict.REJECTED.exit_code
    assert report.ended
    assert report.failed == 1
    told = {one.source: one for one in report.problems}
    assert set(told) == {"s3://arrivals/damaged.zip", "s3://arrivals/rejected.zip"}
    assert told["s3://arrivals/damaged.zip"].failed == 1
    assert told["s3://arrivals/rejected.zip"].reason == "no-eocd"
    assert problems == list(report.problems)


def test_only_the_first_problems_are_in_the_report(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them are told one by one."""
    monkeypatch.setattr(summary, "MAX_PROBLEMS", 2)
    for number in range(5):
        site.put(f"{number}.zip", body=b"no archive")
    backlog = site.submit(BUCKET)
    site.extract_queued()
    problems: list[BacklogProblem] = []
    report = Summary(backlog, site.runs, problems.append).look()
    assert (len(report.problems), len(problems)) == (2, 5)


def test_what_is_extracted_is_read_once(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next look reads only the reports of the others, and has the same sums."""
    site.put("a.zip", "b.zip")
    site.put("bad.zip", body=b"no archive")
    backlog = site.submit(BUCKET)
    site.extract_queued()
    first = look(site, backlog)
    records = submitting.open_records(site.runs)
    ends = records.find_ends(backlog.id, 0)
    assert ends is not None
    assert [one.key for one in ends.others] == ["bad.zip"]
    s3 = site.functions.account.client("s3")
    for one in records.read_list(backlog.id, 0):
        if one.key != "bad.zip":
            s3.delete_object(Bucket="work", Key=f"runs/{one.run}/report.json")
    assert look(site, backlog) == first


def test_who_may_not_write_can_look(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without s3:PutObject each look reads all reports."""
    site.put("a.zip")
    backlog = site.submit(BUCKET)
    site.extract_queued()

    def refuse(*_: object) -> None:
        raise AccessDeniedError("s3:PutObject")

    monkeypatch.setattr(BacklogRecords, "write_ends", refuse)
    seen = Summary(backlog, site.runs)
    assert seen.look() == seen.look()
    assert submitting.open_records(site.runs).find_ends(backlog.id, 0) is None


def test_a_submission_that_was_interrupted(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not queued is counted, and the backlog has not ended."""
    monkeypatch.setattr(submitting, "LIST_LENGTH", 2)
    site.put(*(f"{n}.zip" for n in range(5)))
    runs = site.runs
    backlog = site.record(BUCKET, now=1.0, runs=runs)
    assert look(site, backlog).not_queued == 5

    def stop(_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        submitting.queue_backlog(backlog, runs, stop)
    site.extract_queued()
    report = look(site, backlog)
    assert (report.not_queued, report.verdicts, report.ended) == (3, {"COMPLETED": 2}, False)


def test_runs_of_the_state_machine(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are running while they have workers, waiting where there is no room."""
    monkeypatch.setenv(Variable.TUNING, '{"max_direct_members": 0}')
    monkeypatch.setenv(Variable.WORKERS, "1")
    site.put(*(f"{n}.zip" for n in range(6)))
    backlog = site.submit(BUCKET)
    site.extract_queued()
    report = look(site, backlog)
    assert (report.running, report.waiting, report.queued) == (4, 2, 0)
    assert (report.ended, report.exit_code) == (False, 1)
    run = site.functions.account.executions()[0]
    assert site.functions.report(run)["left"] == 1
    assert look(site, backlog) == report  # a round has ended, not the run
    site.functions.extract(run)
    site.functions.report(run)
    end(site.functions, run)
    report = look(site, backlog)
    assert report.verdicts == {"COMPLETED": 1}


def test_archives_that_changed(site: Site) -> None:
    """One that is gone and one that was overwritten get no report."""
    site.put("gone.zip", "new.zip", "kept.zip")
    backlog = site.submit(BUCKET)
    site.functions.account.client("s3").delete_object(Bucket="arrivals", Key="gone.zip")
    site.put("new.zip", body=make_archive(9))
    site.extract_queued()
    report = look(site, backlog)
    assert (report.gone, report.replaced, report.lost) == (1, 1, 0)
    assert report.ended
    assert report.exit_code == Verdict.SOURCE_CHANGED.exit_code
    states = {one.source.rpartition("/")[2]: one.state for one in report.problems}
    assert states == {"gone.zip": "GONE", "new.zip": "REPLACED"}


def test_archives_whose_messages_are_lost(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody purged the queue: they are lost, the first ones by name."""
    monkeypatch.setattr(summary, "MAX_CHECKED", 2)
    site.put("a.zip", "b.zip", "c.zip")
    backlog = site.submit(BUCKET)
    site.messages()
    report = look(site, backlog)
    assert (report.lost, report.queued, report.ended) == (2, 1, False)
    assert report.exit_code == 1
    assert "see s3unzip reconcile" in (report.problems[0].message or "")


def test_an_execution_without_records_in_the_ledger(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that is retried has no share, and is running all the same."""
    monkeypatch.setenv(Variable.TUNING, '{"max_direct_members": 0}')
    site.put("a.zip")
    backlog = site.submit(BUCKET)
    site.extract_queued()
    s3 = site.functions.account.client("s3")
    for key in site.functions.account.objects("work", "runs/-shares/"):
        s3.delete_object(Bucket="work", Key=key)
    assert look(site, backlog).running == 1


def test_the_right_to_look_at_the_queue(site: Site) -> None:
    """The action that is missing is named."""
    site.put("a.zip")
    backlog = site.submit(BUCKET)
    with (
        HttpServer(deny) as server,
        pytest.raises(AccessDeniedError, match="sqs:GetQueueAttributes"),
    ):
        Summary(backlog, site.denied("sqs", server.url)).look()
