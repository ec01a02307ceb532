"""What `collect` makes of a run: bins that add up, rows that are bounded, text that is clipped."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import s3unzip
from s3unzip.explanations import explain
from s3unzip.model import (
    Failure,
    Options,
    Report,
    Requests,
    TaskKind,
    TaskReport,
    Verdict,
)
from s3unzip.settling.page import Phase, timeline
from s3unzip.settling.page.collection import CODES, NAME_CHARS
from s3unzip.settling.page.data import SLOWEST, SizeBin
from s3unzip.settling.page.document import clip
from tests.unit.settling.page.samples import (
    BEGAN,
    DESTINATION,
    collect,
    make_cost,
    make_forecast,
    million,
    source,
    split,
    table_of,
)

REPORT = Report(
    run="r",
    verdict=Verdict.COMPLETED,
    source=source("a"),
    pin=None,
    destination=DESTINATION,
    options=Options(),
    started=BEGAN,
    finished=BEGAN + 100,
)


def task(number: int, start: float, seconds: float, members: int = 10) -> TaskReport:
    """Return a batch task that began `start` seconds into the run."""
    return TaskReport(
        task=f"batch-{number:06d}",
        kind=TaskKind.BATCH,
        members=members,
        extracted=members,
        bytes_written=members * 1_000,
        started=BEGAN + start,
        seconds=seconds,
    )


TASKS = st.lists(
    st.tuples(st.floats(0, 5_000), st.floats(0, 900), st.integers(0, 4_000)),
    min_size=1,
    max_size=40,
)


@settings(max_examples=40, deadline=None)
@given(TASKS)
def test_rates_add_up(drawn: list[tuple[float, float, int]]) -> None:
    """However tasks lie in time, the steps hold all members and bytes, in bounded numbers."""
    page = collect(REPORT, None, [task(n, *values) for n, values in enumerate(drawn)])
    rates = page.rates
    members = sum(count for _, _, count in drawn)
    assert len(rates.members) <= timeline.STEPS + 1
    # Each step is rounded to a hundredth of a member a second.
    slack = 0.01 * rates.step * len(rates.members)
    assert sum(rates.members) * rates.step == pytest.approx(members, rel=1e-6, abs=slack)
    assert 1 <= rates.max_at_once <= len(drawn)


@settings(max_examples=40, deadline=None)
@given(TASKS)
def test_durations_and_rows_hold_every_task(drawn: list[tuple[float, float, int]]) -> None:
    """No task is lost in a bin or a row."""
    page = collect(REPORT, None, [task(n, *values) for n, values in enumerate(drawn)])
    assert sum(page.durations.tasks) == len(drawn)
    assert len(page.durations.tasks) <= timeline.BINS + 1
    assert sum(row.tasks for row in page.rows) == len(drawn)


def test_rates_of_known_tasks() -> None:
    """Two tasks one after the other give the rates one would reckon by hand."""
    page = collect(REPORT, None, [task(0, 0, 120, 1_200), task(1, 120, 120, 2_400)])
    assert page.rates.step == 1
    assert page.rates.members[:120] == (10,) * 120
    assert page.rates.members[120:] == (20,) * 120
    assert page.rates.bytes[0] == 10_000
    assert page.rates.max_at_once == 1


def test_rows_are_bounded_and_every_kind_has_one() -> None:
    """Thousands of tasks share the rows; a single task of another kind keeps its own."""
    copy = msgspec.structs.replace(task(0, 3, 1), kind=TaskKind.COPY)
    page = collect(REPORT, None, [*(task(n, n / 100, 2) for n in range(5_000)), copy])
    assert len(page.rows) <= timeline.ROWS
    assert [row.kind for row in page.rows].count("copy") == 1


def test_slowest_tasks_are_the_slowest() -> None:
    """The tasks listed by name are those that took longest, the longest first."""
    page = collect(REPORT, None, [task(n, 0, (n * 7919) % 1_000) for n in range(1_000)])
    assert [slow.seconds for slow in page.slowest] == list(range(999, 999 - SLOWEST, -1))


def test_phases_follow_from_the_run() -> None:
    """Plan, scan, link, extract and report stand in the order of time."""
    phases = split().phases
    assert [phase.name for phase in phases] == ["plan", "scan", "link", "extract", "report"]
    assert all(before.start <= after.start for before, after in pairwise(phases))


def test_steps_are_taken_in_unix_seconds() -> None:
    """Measured steps are moved to the run's own time."""
    page = collect(REPORT, None, [task(0, 9, 1)], steps=[Phase("scan", BEGAN + 2, BEGAN + 5)])
    assert Phase("scan", 2, 5) in page.phases


def test_task_that_never_began_has_no_place_in_time() -> None:
    """A task without a start does not stretch the timeline back to 1970."""
    idle = TaskReport(task="batch-1", kind=TaskKind.BATCH, members=4, unfinished=4)
    page = collect(REPORT, None, [idle, task(0, 1, 2)])
    assert page.phases[0].start == 1


def test_sizes_by_powers_of_two() -> None:
    """An empty member has its own bin; a power of two begins the next."""
    assert table_of([0, 1, 2, 3, 4, 1_023, 1_024]).bins() == (
        SizeBin(0, 1, 0),
        SizeBin(1, 1, 1),
        SizeBin(2, 2, 5),
        SizeBin(3, 1, 4),
        SizeBin(10, 1, 1_023),
        SizeBin(11, 1, 1_024),
    )


def test_codes_beyond_the_list_are_counted_together() -> None:
    """Many different codes end in one line with the rest."""
    reasons = {f"code-{n:03d}": 1_000 - n for n in range(CODES + 10)}
    page = collect(msgspec.structs.replace(REPORT, reasons=reasons), None, [])
    assert len(page.reasons) == CODES + 1
    assert sum(reason.members for reason in page.reasons) == sum(reasons.values())


def test_long_text_is_cut_in_the_middle() -> None:
    """Both ends of a long name stay: the folder and the extension."""
    assert clip("a" * 10 + "b" * 10, 9) == "aaaa…bbbb"
    assert clip("\ud800x", 9) == "?x"
    key = "k" * 5_000
    report = msgspec.structs.replace(REPORT, failures=(Failure(key=key, reason="r"),))
    assert len(collect(report, None, []).failures[0].key) == NAME_CHARS


def test_query_of_a_source_is_not_shown() -> None:
    """A presigned address gives no signature away."""
    location = msgspec.structs.replace(
        source("a"), scheme="https", key="x/a.zip?X-Amz-Signature=secret"
    )
    page = collect(msgspec.structs.replace(REPORT, source=location), None, [])
    assert page.archive == "a.zip"
    assert b"secret" not in msgspec.json.encode(page)


def test_costs_and_forecast_are_compared() -> None:
    """Each item of the bill stands beside what was expected of it, and so do the totals."""
    report = msgspec.structs.replace(REPORT, requests=Requests(put=1_000_000, get=10))
    cost = make_cost(report.requests, 100, 4)
    forecast = make_forecast(report, make_cost(Requests(put=900_000), 100, 4))
    page = collect(report, None, [], forecast=forecast, cost=cost)
    puts = page.costs[0]
    assert (puts.forecast, puts.actual, puts.basis) == (4.5, 5.0, "1,000,000 requests")
    assert page.totals.cost == cost.total
    lines = {line.name: line for line in page.comparisons}
    assert lines["Duration"].forecast == pytest.approx(93)
    assert lines["Duration"].actual == 100
    assert lines["Cost"].actual == cost.total


def test_report_alone_carries_a_forecast() -> None:
    """Without a simulation, the figures that the report carries are compared."""
    report = msgspec.structs.replace(REPORT, forecast_seconds=80.0, forecast_cost=2.0)
    lines = {line.name: line for line in collect(report, None, []).comparisons}
    assert (lines["Duration"].forecast, lines["Duration"].actual) == (80, 100)
    assert (lines["Cost"].forecast, lines["Cost"].actual) == (2, None)


PACE = [
    (Verdict.FAILED, {}, 100.0, "the run did not end"),
    (Verdict.COMPLETED, {"unchanged": 5}, 100.0, "unchanged ones were not written"),
    (Verdict.COMPLETED, {}, 900.0, "which is slower or was busy"),
    (Verdict.COMPLETED, {}, 10.0, "which is faster"),
    (Verdict.COMPLETED, {}, 100.0, ""),
]


@pytest.mark.parametrize(("verdict", "fields", "took", "why"), PACE)
def test_times_of_another_run_are_left_out(
    verdict: Verdict, fields: dict[str, int], took: float, why: str
) -> None:
    """A forecast for another machine, or of other work, is not compared, and the page says why."""
    cost = make_cost(Requests(put=10), 100, 4)
    forecast = msgspec.structs.replace(make_forecast(REPORT, cost), platform="local")
    report = msgspec.structs.replace(
        REPORT, verdict=verdict, finished=REPORT.started + took, **fields
    )
    page = collect(report, None, [task(0, 0, took)], forecast=forecast, cost=cost)
    assert why in page.difference
    assert bool(why) == bool(page.difference)
    names = {line.name for line in page.comparisons}
    assert ("Duration" in names) == (not why)
    assert "Cost" in names


def test_an_interrupted_run_is_not_compared() -> None:
    """The time between a run and its redrive belongs to neither."""
    page = collect(REPORT, None, [task(0, 0, 10), task(1, 90, 10)])
    assert page.totals.idle_seconds == 80
    assert "interrupted" in page.difference


def test_a_slow_run_on_aws_is_explained() -> None:
    """What S3 answered, and tasks that did not end, are named as causes."""
    cost = make_cost(Requests(put=10), 100, 4)
    forecast = make_forecast(REPORT, cost)
    slow = msgspec.structs.replace(
        REPORT,
        finished=REPORT.started + 500,
        requests=Requests(put=10, retries=3, throttled=2),
        tasks_failed=1,
    )
    page = collect(slow, None, [task(0, 0, 500)], forecast=forecast, cost=cost)
    assert "2 requests were throttled; 3 requests were repeated; 1 tasks did not" in page.difference
    assert {line.name for line in page.comparisons} >= {"Duration", "Cost"}
    plain = msgspec.structs.replace(slow, requests=Requests(), tasks_failed=0)
    page = collect(plain, None, [task(0, 0, 500)], forecast=forecast, cost=cost)
    assert "the slowest tasks are listed above" in page.difference


def test_keys_are_relative_to_the_destination() -> None:
    """The destination stands at the top of the page; its prefix is not repeated in each row."""
    prefix = REPORT.destination.key
    failures = (Failure(key=f"{prefix}a/b.txt", reason="crc-mismatch"),)
    page = collect(msgspec.structs.replace(REPORT, failures=failures), None, [])
    assert [failure.key for failure in page.failures] == ["a/b.txt"]


def test_page_data_survives_json() -> None:
    """The values go through JSON without loss, as all that travel do."""
    page = million(50)
    assert msgspec.json.decode(msgspec.json.encode(page), type=type(page)) == page


def test_codes_are_told_in_words() -> None:
    """The page has the command line's sentences and advice, the run and the next command."""
    reasons = {"wrong-password": 2}
    report = msgspec.structs.replace(
        REPORT, verdict=Verdict.COMPLETED_WITH_ERRORS, reasons=reasons, warnings={"fifo-mode": 1}
    )
    page = collect(report, None, [])
    assert [reason.sentence for reason in page.reasons] == [explain("wrong-password").sentence]
    assert [reason.advice for reason in page.warnings] == [explain("fifo-mode").advice]
    assert page.next == f"s3unzip resume {report.run} --failed --password-file FILE"
    deployed = collect(report, None, [], environment="dev")
    assert deployed.next == f"s3unzip resume {report.run} --failed --env dev"
    assert f"s3unzip resume {report.run} --env dev --failed" in deployed.reasons[0].advice
    assert page.version == s3unzip.__version__


def test_a_refusal_is_told_once() -> None:
    """Its message is in words, and its code and place stand beside it."""
    report = msgspec.structs.replace(
        REPORT, verdict=Verdict.REJECTED, reason="no-eocd", message="It is text.", offset=7
    )
    page = collect(report, None, [])
    assert (page.reason, page.message, page.offset) == ("no-eocd", "It is text.", 7)
    assert page.advice == explain("no-eocd").advice
