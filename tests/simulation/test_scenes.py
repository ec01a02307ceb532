"""Scenes of the simulation: what happens late, twice and half, one guard of the protocol each."""

import json
from collections.abc import Callable
from functools import partial

import pytest

from s3unzip.aws import events, telemetry
from s3unzip.settings import Variable
from tests.simulation.archives import SAME_STEM, Recipe
from tests.simulation.promises import COMPLETED, RUN_FAILED
from tests.simulation.schedule import (
    DELETED,
    EQUAL,
    NEWER,
    PLAIN,
    SMALL,
    VERSIONED,
    Stage,
    event_of,
)
from tests.simulation.services import invoke
from tests.simulation.world import START, World

WHOLE_TAIL = 262_144  # a small archive is in memory after the first request
SHORT_TAIL = 400  # its directory is, but not its members
NEARLY_ALL = 172.0  # seconds of the extract function's time
SCANNED = 10  # a kind: there are versions, and each is scanned before it is opened
DAYS = 3 * 86_400.0
TINY_TAIL = 150  # the state machine plans it
MANY = Recipe(0, small=14)  # too many members for the intake function
NEWER_MANY = Recipe(1, small=14)


def test_a_small_archive_takes_four_requests_beside_its_members() -> None:
    """Its end, the look for a report, its outcomes and its report; then its event."""
    with Stage(tail_bytes=WHOLE_TAIL) as stage:
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
        stage.check()


@pytest.mark.parametrize("after", ["deleted", "replaced"])
def test_a_late_duplicate_replaces_no_report(after: str) -> None:
    """Two deliveries: one extracts, the archive goes, and the other one leaves all as it is."""
    with Stage(tail_bytes=SHORT_TAIL) as stage:
        gone = stage.remove if after == "deleted" else partial(stage.replace, NEWER)
        stage.at("intake", 2, "read", stage.wait, gone)
        stage.play(partial(stage.put, SMALL), stage.send)
        run = stage.run_of(SMALL.version)
        assert [report["verdict"] for report in run.reports] == [COMPLETED]
        assert {*run.told} == {COMPLETED}
        assert sum(map(len, run.outcomes.values())) == 3
        stage.check()


def test_a_late_fault_replaces_no_report() -> None:
    """Two deliveries: one extracts, the other one is refused a PUT, and leaves all as it is."""
    with Stage(tail_bytes=WHOLE_TAIL) as stage:
        stage.at("intake", 2, "put out/", stage.wait, stage.deny)
        stage.play(partial(stage.put, SMALL), stage.send)
        run = stage.run_of(SMALL.version)
        assert [report["verdict"] for report in run.reports] == [COMPLETED]
        assert {*run.told} == {COMPLETED}
        assert not stage.services.executions
        (records,) = stage.world.records.values()
        assert {*records} == {"outcomes/batch-0000000.jsonl", "report.json"}
        stage.check()


@pytest.mark.parametrize("call", ["create outcomes/", "create report.json"])
def test_the_better_of_two_simultaneous_attempts_is_on_record(call: str) -> None:
    """One is refused a PUT, and writes its records while the other one completes the run."""
    with Stage(tail_bytes=WHOLE_TAIL) as stage:
        stage.at("intake", 2, "put out/", stage.deny)
        stage.at("intake", 2, "write members.jsonl", stage.wait)
        stage.at("intake", 1, call, partial(stage.wait, 5.0))
        stage.play(partial(stage.put, SMALL), stage.send)
        run = stage.run_of(SMALL.version)
        assert run.verdict == COMPLETED
        assert sum(map(len, run.outcomes.values())) == 3
        stage.check()


@pytest.mark.parametrize("call", ["put events", "stat"])
@pytest.mark.parametrize("after", ["deleted", "replaced", "there"])
def test_an_end_that_is_cut_off_is_repeated(after: str, call: str) -> None:
    """The function is killed between report and event: its message comes again, and sends it."""
    kind = DELETED if call == "put events" else PLAIN
    with Stage(kind, tail_bytes=WHOLE_TAIL) as stage:
        steps: dict[str, list[Callable[[], object]]] = {
            "deleted": [stage.remove],
            "replaced": [partial(stage.put, NEWER)],
            "there": [],
        }
        stage.at("intake", 1, "put out/", partial(stage.wait, 2.0))  # not brief: it looks again
        stage.at("intake", 1, call, *steps[after], stage.kill)
        stage.play(partial(stage.put, SMALL))
        run = stage.run_of(SMALL.version)
        assert run.told == [COMPLETED]
        if kind == DELETED:
            assert run.reports[-1]["after_success"]["state"] == "done"
        stage.check()


@pytest.mark.parametrize("call", ["put out/", "create outcomes/", "create report.json"])
@pytest.mark.parametrize("kind", [PLAIN, VERSIONED, SCANNED])
def test_an_older_attempt_that_is_killed_leaves_the_newest(
    monkeypatch: pytest.MonkeyPatch, kind: int, call: str
) -> None:
    """It wrote over the newer members, and left no report; its message finds the newer archive."""
    if kind == SCANNED:
        monkeypatch.setenv(Variable.SCAN, "guardduty")
        monkeypatch.setattr("tests.simulation.schedule.event_of", scan_of)
    with Stage(min(kind, VERSIONED), tail_bytes=WHOLE_TAIL) as stage:
        stage.at("intake", 1, "put out/", partial(stage.replace, NEWER))
        if call == "put out/":
            stage.at("intake", 1, call, partial(stage.replace, NEWER), stage.kill)
        else:
            stage.at("intake", 1, call, stage.kill)
        stage.play(partial(stage.put, SMALL))
        assert stage.run_of(NEWER.version).verdict == COMPLETED
        assert any("-again" in run for run in stage.runs)
        stage.check()


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


@pytest.mark.parametrize("late", [False, True])
def test_an_aborted_older_run_leaves_the_newest(late: bool) -> None:  # noqa: FBT001 - a case
    """Nobody resumes it; its functions work on, and may write after the first look."""
    with Stage(VERSIONED, tail_bytes=WHOLE_TAIL) as stage:

        def abort() -> None:
            stage.executions[0].stop()

        works_on = partial(stage.wait, 100.0 if late else 0.0)
        stage.at("extract", 1, "put out/", partial(stage.replace, NEWER_MANY))
        stage.at("extract", 2, "put out/", partial(stage.wait, 40.0), abort, works_on)
        stage.play(partial(stage.put, MANY))
        assert stage.run_of(NEWER_MANY.version).verdict == COMPLETED
        assert stage.run_of(MANY.version).verdict == RUN_FAILED
        looks = [one.began - START for one in stage.executions if "-again" in one.name]
        assert min(looks) < 300
        assert max(looks) > 900
        stage.check()


def test_a_late_settling_replaces_no_newer_report() -> None:
    """A run fails twice; its second settling hangs in its last write until the third has ended."""
    with Stage(tail_bytes=WHOLE_TAIL) as stage:

        def refuse(number: int) -> None:
            stage.at("extract", number, "put out/", stage.deny)

        def abort_and_resume() -> None:
            stage.executions[-1].stop()
            stage.wait(1.0)
            stage.resume()
            stage.wait()

        refuse(1)
        stage.play(partial(stage.put, MANY))
        refuse(stage.world.invocations["extract"] + 1)
        number = stage.world.invocations["settle"] + 1
        stage.at("settle", number, "replace report.json", abort_and_resume)
        stage.play(stage.resume)
        assert stage.run_of(MANY.version).verdict == COMPLETED
        stage.check()


STATES = {"none": "", "running": "RUNNING", "closed": "FAILED"}
REPORTS = {"none": "", "failed": RUN_FAILED, "done": COMPLETED}
FOLLOWS = {  # what the second event of an archive does
    ("none", "none"): "RUN",
    ("none", "failed"): "RUN",
    ("none", "done"): "",
    ("running", "none"): "",
    ("running", "failed"): "",
    ("running", "done"): "",
    ("closed", "none"): "RUN-r2",
    ("closed", "failed"): "RUN-r2",
    ("closed", "done"): "",
}


@pytest.mark.parametrize(("state", "report"), FOLLOWS)
def test_the_next_event_goes_on_with_what_is_not_at_work(state: str, report: str) -> None:
    """An execution that ended without a report, or FAILED, takes no event; one at work does."""
    with Stage(tail_bytes=TINY_TAIL) as stage:
        stage.play(partial(stage.put, MANY))
        (run,) = stage.runs
        (first,) = stage.executions
        records = stage.world.records[run]
        done = json.loads(records.pop("report.json"))
        if report != "none":
            records["report.json"] = json.dumps(
                done | {"verdict": REPORTS[report], "finished": first.began - 1}
            ).encode()
        stage.runs[run].reports.clear()
        if state == "none":
            stage.services.executions.clear()
        else:
            first.status = STATES[state]
        known = {*stage.services.executions}
        stage.play(stage.send)
        started = {*stage.services.executions} - known
        assert started == ({FOLLOWS[state, report].replace("RUN", run.replace("/", "-"))} - {""})


@pytest.mark.parametrize("tail", [TINY_TAIL, SHORT_TAIL, WHOLE_TAIL])
def test_an_equal_id_of_another_archive_is_a_dead_letter(tail: int) -> None:
    """A report, a plan or an execution of another archive is never taken for the same run."""
    with Stage(EQUAL, tail_bytes=tail) as stage, pytest.MonkeyPatch.context() as patch:
        patch.setattr("s3unzip.run_ids.DIGEST_DIGITS", 0)
        stage.world.promises.equal_ids = True
        first, second = (partial(stage.put, *given) for given in equal_archives())
        stage.play(first, second)
        assert stage.services.refused() <= {SAME_STEM[0], SAME_STEM[1]}
        assert len(stage.services.dead_letters) == 1
        (run,) = stage.runs.values()
        assert [report["verdict"] for report in run.reports] == [COMPLETED]
        stage.world.promises.check_ids(stage.services.refused())


def equal_archives() -> list[tuple[Recipe, str, str]]:
    """Return two archives of one name, with the prefixes of their members."""
    return [
        (Recipe(10 + number, small=3), key, f"out/{key.removesuffix('.zip')}/")
        for number, key in enumerate(SAME_STEM[:2])
    ]


def test_the_news_of_an_abort_is_late() -> None:
    """A run that goes on is not reported as failed, and no second execution begins beside it."""
    with Stage(tail_bytes=WHOLE_TAIL) as stage:

        def abort_and_resume() -> None:
            stage.services.news_seconds = 20.0
            stage.executions[0].stop()
            stage.resume()
            stage.wait(5.0)
            stage.send()

        stage.at("extract", 1, "put out/", abort_and_resume)
        stage.at("plan", 1, "read run.json", partial(stage.wait, 60.0))
        stage.play(partial(stage.put, MANY))
        assert len(stage.services.executions) == 2
        assert stage.run_of(MANY.version).told == [COMPLETED]
        stage.check()


def test_an_execution_with_many_rounds_hands_over() -> None:
    """The next one begins with the round that follows, once, also if the step is repeated."""
    with Stage(tail_bytes=WHOLE_TAIL) as stage, pytest.MonkeyPatch.context() as patch:
        patch.setattr("s3unzip.aws.executions.EXECUTION_ROUNDS", 1)
        repeated: list[dict[str, object]] = []

        def settle_again() -> None:
            first = stage.executions[0]
            event = {"state": first.given, "execution": first.name}
            repeated.append(invoke(stage.world, "settle", event))

        stage.at("extract", 1, "read stop.json", partial(stage.wait, NEARLY_ALL))
        stage.at("extract", MANY.small + 1, "read stop.json", settle_again)
        stage.play(partial(stage.put, MANY))
        (run,) = stage.runs
        name = run.replace("/", "-")
        assert [one.name for one in stage.executions] == [name, f"{name}-r2"]
        assert [one.status for one in stage.executions] == ["SUCCEEDED", "SUCCEEDED"]
        assert [state["next"] for state in repeated] == ["done"]
        assert stage.run_of(MANY.version).told == [COMPLETED]
        stage.check()


@pytest.mark.parametrize("ends", [["ABORTED"], ["ABORTED", "SUCCEEDED"]])
def test_an_aborted_execution_hands_nothing_over(
    ends: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its last step works on when it was stopped, and starts no execution, resumed or not."""
    monkeypatch.setattr("s3unzip.aws.executions.EXECUTION_ROUNDS", 1)
    with Stage(tail_bytes=WHOLE_TAIL) as stage:

        def stop() -> None:
            stage.executions[0].stop()
            if len(ends) > 1:
                stage.resume()
                stage.at("plan", 1, "read run.json", partial(stage.wait, 60.0))

        stage.at("extract", 1, "read stop.json", partial(stage.wait, NEARLY_ALL))
        stage.at("settle", 1, "write rounds/01", stop)
        stage.play(partial(stage.put, MANY))
        assert [one.status for one in stage.executions] == ends
        stage.check()


def test_a_third_round_is_in_a_distributed_map() -> None:
    """Its tasks have histories of their own, however few they are."""
    with Stage(tail_bytes=WHOLE_TAIL) as stage:
        stage.at("extract", 1, "read stop.json", partial(stage.wait, NEARLY_ALL))
        for number in (1, 2):
            stage.at(
                "extract", MANY.small + number, "read stop.json", partial(stage.wait, NEARLY_ALL)
            )
        stage.play(partial(stage.put, MANY))
        states = [line.rpartition(": ")[2] for line in stage.world.trace if " tasks" in line]
        assert states == ["Few tasks", "Few tasks", "Many tasks", "Many tasks"]
        stage.check()


def test_only_the_first_end_of_a_run_is_timed() -> None:
    """A run that is resumed days after it failed does not count as slow."""
    with Stage(tail_bytes=WHOLE_TAIL) as stage, pytest.MonkeyPatch.context() as patch:
        emitted: list[set[str]] = []

        def keep_names() -> None:
            emitted.append({*telemetry.metrics.metric_set})
            telemetry.metrics.clear_metrics()

        patch.setattr(telemetry.metrics, "flush_metrics", keep_names)
        stage.at("extract", 1, "put out/", stage.deny)
        stage.play(partial(stage.put, MANY))
        stage.play(partial(stage.wait, DAYS), stage.resume)
        assert stage.run_of(MANY.version).told == [RUN_FAILED, COMPLETED]
        ends = [names for names in emitted if "ArchivesCompleted" in names]
        assert ["ArchiveDuration" in names for names in ends] == [True, False]
