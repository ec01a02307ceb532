"""Scenes of the simulation: what happens late, twice and half, one guard of the protocol each."""

import json
from collections.abc import Callable
from functools import partial

import pytest

from s3unzip.aws import events, telemetry
from s3unzip.settings import Variable
from tests.simulation.archives import SAME_STEM, STEM, Recipe
from tests.simulation.promises import COMPLETED, RUN_FAILED
from tests.simulation.schedule import (
    DELETED,
    EQUAL,
    NEWER,
    PLAIN,
    SMALL,
    VERSIONED,
    event_of,
    staged,
)
from tests.simulation.world import START, World

WHOLE_TAIL = 262_144  # a small archive is in memory after the first request
SHORT_TAIL = 400  # its directory is, but not its members
NEARLY_ALL = 172.0  # seconds of the extract function's time
SCANNED = 10  # a kind: there are versions, and each is scanned before it is opened
TINY_TAIL = 150  # the state machine plans it
MANY = Recipe(0, small=14)  # too many members for the intake function
NEWER_MANY = Recipe(1, small=14)


def test_a_small_archive_takes_four_requests_beside_its_members() -> None:
    """Its end, the look for a report, its outcomes and its report; then its event."""
    with staged(tail_bytes=WHOLE_TAIL) as stage:
        stage.play(partial(stage.put, SMALL))
        calls = [line.removeprefix("intake: ").split(maxsplit=1) for line in stage.world.trace]
        others = [words for words in calls if words[0] != "put" or words[1] == "events"]
        assert [words[0] for words in others] == [
            "tail",
            "read",
            "create",
            "create",
            "event",
            "put",
        ]


@pytest.mark.parametrize(
    ("after", "call", "tail"),
    [
        ("deleted", "read", SHORT_TAIL),
        ("replaced", "read", SHORT_TAIL),
        ("refused", "put out/", WHOLE_TAIL),
    ],
)
def test_a_late_duplicate_replaces_no_report(after: str, call: str, tail: int) -> None:
    """Two deliveries: one extracts, the other one meets another world, and leaves all as it is."""
    with staged(tail_bytes=tail) as stage:
        steps: dict[str, Callable[[], object]] = {
            "deleted": stage.remove,
            "replaced": partial(stage.replace, NEWER),
            "refused": stage.deny,
        }
        stage.at("intake", 2, call, stage.wait, steps[after])
        stage.play(partial(stage.put, SMALL), stage.send)
        run = stage.run_of(SMALL.version)
        verdicts = [report["verdict"] for report in run.reports]
        members = sum(map(len, run.outcomes.values()))
        assert (verdicts, {*run.told}, members) == ([COMPLETED], {COMPLETED}, 3)
        first, *_ = stage.world.records.values()
        is_small = {*first} == {"outcomes/batch-0000000.jsonl", "report.json"}
        assert (is_small, not stage.services.executions) == (tail == WHOLE_TAIL,) * 2


@pytest.mark.parametrize("call", ["create outcomes/", "create report.json"])
def test_the_better_of_two_simultaneous_attempts_is_on_record(call: str) -> None:
    """One is refused a PUT, and writes its records while the other one completes the run."""
    with staged(tail_bytes=WHOLE_TAIL) as stage:
        stage.at("intake", 2, "put out/", stage.deny)
        stage.at("intake", 2, "write members.jsonl", stage.wait)
        stage.at("intake", 1, call, partial(stage.wait, 5.0))
        stage.play(partial(stage.put, SMALL), stage.send)
        run = stage.run_of(SMALL.version)
        assert (run.verdict, sum(map(len, run.outcomes.values()))) == (COMPLETED, 3)


@pytest.mark.parametrize(("call", "kind"), [("put events", DELETED), ("stat", PLAIN)])
@pytest.mark.parametrize("after", ["deleted", "replaced", "there"])
@pytest.mark.parametrize("upload_seconds", [0, 120])
def test_an_end_that_is_cut_off_is_repeated(
    upload_seconds: int, after: str, call: str, kind: int
) -> None:
    """The function is killed between report and event: its message comes again, and sends it."""
    with staged(kind, tail_bytes=WHOLE_TAIL) as stage:
        steps: dict[str, list[Callable[[], object]]] = {
            "deleted": [stage.remove],
            "replaced": [partial(stage.put, NEWER)],
            "there": [],
        }
        stage.at("intake", 1, "put out/", partial(stage.wait, 2.0))  # not brief: it looks again
        stage.at("intake", 1, call, *steps[after], stage.kill)
        stage.play(partial(stage.put, SMALL, upload_seconds=upload_seconds))
        run = stage.run_of(SMALL.version)
        assert run.told == [COMPLETED]
        if kind == DELETED:
            assert run.reports[-1]["after_success"]["state"] == "done"


@pytest.mark.parametrize("call", ["put out/", "create outcomes/", "create report.json"])
@pytest.mark.parametrize("kind", [PLAIN, VERSIONED, SCANNED])
def test_an_older_attempt_that_is_killed_leaves_the_newest(
    monkeypatch: pytest.MonkeyPatch, kind: int, call: str
) -> None:
    """It wrote over the newer members, and left no report; its message finds the newer archive."""
    if kind == SCANNED:
        monkeypatch.setenv(Variable.SCAN, "guardduty")
        monkeypatch.setattr("tests.simulation.schedule.event_of", scan_of)
    with staged(min(kind, VERSIONED), tail_bytes=WHOLE_TAIL) as stage:
        stage.at("intake", 1, "put out/", partial(stage.replace, NEWER))
        if call == "put out/":
            stage.at("intake", 1, call, partial(stage.replace, NEWER), stage.kill)
        else:
            stage.at("intake", 1, call, stage.kill)
        stage.play(partial(stage.put, SMALL))
        assert stage.run_of(NEWER.version).verdict == COMPLETED
        assert any("-again" in run for run in stage.runs)


def scan_of(world: World, key: str) -> str:
    """Return GuardDuty's event of an archive that it has scanned and tagged: it has no threat."""
    world.ingest.objects[key].facts.metadata[events.SCAN_TAG] = events.CLEAN
    etag = world.ingest.objects[key].etag
    event = {
        "detail-type": "GuardDuty Malware Protection Object Scan Result",
        "source": "aws.guardduty",
        "detail": {
            "s3ObjectDetails": {
                "bucketName": "ingest",
                "objectKey": key,
                "eTag": etag,
                "versionId": etag,
            },
            "scanResultDetails": {"scanResultStatus": events.CLEAN},
        },
    }
    return json.dumps(json.loads(event_of(world, key)) | event)


@pytest.mark.parametrize("late", [0.0, 100.0])
def test_an_aborted_older_run_leaves_the_newest(late: float) -> None:
    """Nobody resumes it; its functions work on, and may write after the first look."""
    with staged(VERSIONED, tail_bytes=WHOLE_TAIL) as stage:
        stage.at("extract", 1, "put out/", partial(stage.replace, NEWER_MANY))
        works_on = partial(stage.wait, late)
        stage.at("extract", 2, "put out/", partial(stage.wait, 40.0), stage.abort, works_on)
        stage.play(partial(stage.put, MANY))
        verdicts = [stage.run_of(one.version).verdict for one in (NEWER_MANY, MANY)]
        assert verdicts == [COMPLETED, RUN_FAILED]
        looks = [one.began - START for one in stage.executions if "-again" in one.name]
        assert min(looks) < 300
        assert max(looks) > 900


def test_a_late_settling_replaces_no_newer_report() -> None:
    """A run fails twice; its second settling hangs in its last write until the third has ended."""
    with staged(tail_bytes=WHOLE_TAIL) as stage:
        stage.at("extract", 1, "put out/", stage.deny)
        stage.play(partial(stage.put, MANY))
        done = stage.world.invocations
        stage.at("extract", done["extract"] + 1, "put out/", stage.deny)
        stage.at(
            "settle",
            done["settle"] + 1,
            "replace report.json",
            partial(stage.abort, -1),
            partial(stage.wait, 1.0),
            stage.resume,
            stage.wait,
        )
        stage.play(stage.resume)
        assert stage.run_of(MANY.version).verdict == COMPLETED


@pytest.mark.parametrize(
    ("status", "verdict", "follows"),
    [
        ("", "", "RUN"),
        ("", RUN_FAILED, "RUN"),
        ("", COMPLETED, ""),
        ("RUNNING", "", ""),
        ("RUNNING", RUN_FAILED, ""),
        ("RUNNING", COMPLETED, ""),
        ("FAILED", "", "RUN-r2"),
        ("FAILED", RUN_FAILED, "RUN-r2"),
        ("FAILED", COMPLETED, ""),
    ],
)
def test_the_next_event_goes_on_with_what_is_not_at_work(
    status: str, verdict: str, follows: str
) -> None:
    """An execution that ended without a report, or FAILED, takes no event; one at work does.

    The second event of an archive finds an execution of a status, and a report of a verdict. If the
    records answer no second look for it, the function ends in time, and its message comes again.
    """
    with staged(tail_bytes=TINY_TAIL, is_checked=False) as stage:
        stage.play(partial(stage.put, MANY))
        (run,) = stage.runs
        (first,) = stage.executions
        records = stage.world.records[run]
        report = json.loads(records.pop("report.json"))
        if verdict:
            report |= {"verdict": verdict, "finished": first.began - 1}
            records["report.json"] = json.dumps(report).encode()
        stage.runs[run].reports.clear()
        if status:
            first.status = status
        else:
            stage.services.executions.clear()
        known = {*stage.services.executions}

        def end_answers() -> None:
            stage.at("intake", 2, "read report.json", end_answers, stage.fail)

        stage.at("intake", 2, "read report.json", stage.wait, end_answers)
        stage.play(stage.send)
        assert {*stage.services.executions} - known == (
            {follows.replace("RUN", run.replace("/", "-"))} - {""}
        )


@pytest.mark.parametrize("tail", [TINY_TAIL, SHORT_TAIL, WHOLE_TAIL])
def test_an_equal_id_of_another_archive_is_a_dead_letter(tail: int) -> None:
    """A report, a plan or an execution of another archive is never taken for the same run."""
    with (
        staged(EQUAL, tail_bytes=tail, is_checked=False) as stage,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr("s3unzip.run_ids.DIGEST_DIGITS", 0)
        stage.world.promises.equal_ids = True
        first = partial(stage.put, Recipe(10, small=3), SAME_STEM[0], f"out/a/{STEM}/")
        second = partial(stage.put, Recipe(11, small=3), SAME_STEM[1], f"out/b/{STEM}/")
        stage.play(first, second)  # two archives of one name
        assert stage.services.refused() <= {SAME_STEM[0], SAME_STEM[1]}
        assert len(stage.services.dead_letters) == 1
        (run,) = stage.runs.values()
        assert [report["verdict"] for report in run.reports] == [COMPLETED]
        stage.world.promises.check_ids(stage.services.refused())


def test_the_news_of_an_abort_is_late() -> None:
    """A run that goes on is not reported as failed, and no second execution begins beside it."""
    with staged(tail_bytes=WHOLE_TAIL) as stage:
        stage.services.news_seconds = 20.0
        seconds_later = partial(stage.wait, 5.0)
        stage.at("extract", 1, "put out/", stage.abort, stage.resume, seconds_later, stage.send)
        stage.at("plan", 1, "read run.json", partial(stage.wait, 60.0))
        stage.play(partial(stage.put, MANY))
        assert (len(stage.services.executions), stage.run_of(MANY.version).told) == (2, [COMPLETED])


def test_an_execution_that_is_redriven_and_aborted_again_is_reported_again() -> None:
    """Each report is of its own moment, and no run ends before it began, also without a plan."""
    with staged(tail_bytes=TINY_TAIL) as stage:
        stage.services.news_seconds = 2.0
        for number in (1, 2):
            stage.at(
                "plan", number, "read run.json", partial(stage.wait, 5.0), stage.abort, stage.kill
            )
        stage.play(partial(stage.put, MANY))
        stage.play(stage.redrive)
        times = [
            report[name]
            for report in stage.run_of(MANY.version).reports
            for name in ("started", "finished")
        ]
        assert (len(times), sorted(times)) == (4, times)


def test_a_redriven_execution_that_fails_beside_a_later_one_reports_nothing() -> None:
    """The run goes on in the later execution, although it began before the end of the other."""
    with staged(tail_bytes=WHOLE_TAIL) as stage:
        stage.at(
            "extract",
            1,
            "put out/",
            stage.abort,
            stage.resume,
            partial(stage.wait, 5.0),
            stage.redrive,
            stage.abort,
        )
        stage.at("plan", 1, "read run.json", partial(stage.wait, 60.0))
        stage.play(partial(stage.put, MANY))
        ends = [one.status for one in stage.executions]
        assert (ends, stage.run_of(MANY.version).told) == (["ABORTED", "SUCCEEDED"], [COMPLETED])


def test_a_third_round_is_in_a_distributed_map() -> None:
    """Its tasks have histories of their own, however few they are."""
    with staged(tail_bytes=WHOLE_TAIL) as stage:
        for number in (1, MANY.small + 1, MANY.small + 2):
            stage.at("extract", number, "read stop.json", partial(stage.wait, NEARLY_ALL))
        stage.play(partial(stage.put, MANY))
        states = [line.rpartition(": ")[2] for line in stage.world.trace if " tasks" in line]
        assert states == ["Few tasks", "Few tasks", "Many tasks", "Many tasks"]


def test_only_the_first_end_of_a_run_is_timed() -> None:
    """A run that is resumed days after it failed does not count as slow."""
    with staged(tail_bytes=WHOLE_TAIL) as stage, pytest.MonkeyPatch.context() as patch:
        emitted: list[set[str]] = []

        def keep_names() -> None:
            emitted.append({*telemetry.metrics.metric_set})
            telemetry.metrics.clear_metrics()

        patch.setattr(telemetry.metrics, "flush_metrics", keep_names)
        stage.at("extract", 1, "put out/", stage.deny)
        stage.play(partial(stage.put, MANY))
        stage.play(partial(stage.wait, 3 * 86_400.0), stage.resume)
        assert stage.run_of(MANY.version).told == [RUN_FAILED, COMPLETED]
        ends = [names for names in emitted if "ArchivesCompleted" in names]
        assert ["ArchiveDuration" in names for names in ends] == [True, False]
