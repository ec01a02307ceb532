"""Runs through the proxy: requests fail, rights go, archives change, workers are killed.

The short form is part of the suite. The long form, ``make faults``, has more and larger cases under
the same assertions, and prints the figures of docs/reliability.md.

The requests in report.json are those that the proxy saw, kind by kind. A task and the report count
up to the object that they write last, so kinds of requests that the records of a run need are
counted nearly, the others exactly.
"""

import random
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

import pytest
from msgspec.structs import asdict, replace

from s3unzip import errors, settings
from s3unzip.context import Context
from s3unzip.extraction.task import run_task
from s3unzip.local.destination_objects import clear_extra
from s3unzip.model import OnConflict, Options, Report, Run, Task, Verdict
from s3unzip.runs.records import RunRecords
from s3unzip.settling.loop import begin_run, settle
from s3unzip.stores.ports import Clock, StoredObject
from tests.faults import bombs, killing
from tests.faults.conftest import DESTINATION, KEY, LONG, SOURCE, World, expected_listing
from tests.faults.proxy import WRITES, Act, Record, Rule

BUDGET_DOLLARS, BUDGET_BYTES = 0.001, 1 * settings.MIB  # of refusing a bomb
MEMBERS = Rule(Act.ANSWER, within="/members/", kinds=WRITES, status=403, code="AccessDenied")
ARCHIVE = Rule(Act.ANSWER, within="/ingest/", kinds=("get",), status=403, code="AccessDenied")
KMS = Rule(Act.ANSWER, within="/members/", kinds=WRITES, status=400, code="KMS.DisabledException")
ANY = {
    "503": Rule(Act.ANSWER, chance=0.2),
    "truncated": Rule(Act.TRUNCATE, chance=0.2),
    "lost": Rule(Act.LOSE, chance=0.1),
    "flipped": Rule(Act.FLIP, kinds=("put", "part"), within="/members/", chance=0.1),
}
if LONG:
    ANY |= {
        "warm": Rule(Act.RESET, times=0),
        "none": Rule(Act.RESET, times=0),
        **{
            f"{name}.{rate:g}": Rule(chance=rate, **fields)  # type: ignore[arg-type]  # as in a rule
            for name, fields in {
                "503": {"act": Act.ANSWER},
                "500": {"act": Act.ANSWER, "status": 500, "code": "InternalError"},
                "reset": {"act": Act.RESET},
                "truncated": {"act": Act.TRUNCATE},
                "lost": {"act": Act.LOSE},
            }.items()
            for rate in (0.01, 0.05, 0.2)
        },
        "flipped_part": Rule(Act.FLIP, kinds=("part",), times=2),
        "stalled": Rule(Act.STALL, kinds=("get", "put", "part"), chance=0.01, seconds=8),
        "kms": Rule(
            Act.ANSWER, kinds=("put",), chance=0.1, status=400, code="KMS.ThrottlingException"
        ),
    }


def _say(what: str, **figures: float) -> None:
    for name, value in figures.items():
        print(f"BENCH faults.{what}.{name} {value:g}", flush=True)  # noqa: T201 - the long form


def check_complete(world: World, report: Report, archive: bytes) -> None:
    """Assert that all members arrived unchanged, and that no upload is left."""
    assert (report.verdict, world.uploads()) == (Verdict.COMPLETED, 0)
    assert world.listing() == expected_listing(archive)


def extract(world: World, archive: bytes, rule: Rule, label: str) -> int:
    """Extract an archive while `rule` holds; nothing is lost or left. Return the faults."""
    world.clear()
    world.put_archive(archive)
    world.proxy.set_rules(rule)
    started = time.monotonic()
    report = world.run()
    seconds = time.monotonic() - started
    records = world.proxy.take_records()
    check_complete(world, report, archive)
    faults = sum(bool(record.fault) for record in records)
    _say(label, seconds=seconds, requests=len(records), faults=faults)
    return faults


def test_killed_workers_leave_nothing_undone(world: World) -> None:
    """After kills and at most one resumed run all members exist, and no upload is left."""
    found = killing.kill_and_resume(world, 1_000 if LONG else 6)
    _say("kills", **found)
    assert found["equal_sequences"] == found["sequences"]
    assert (found["uploads_left"], found["files_left"], found["survivors"]) == (0, 0, 0)


@pytest.mark.parametrize("name", ANY)
def test_no_member_is_lost(world: World, name: str) -> None:
    """With any share of failing requests, all members arrive unchanged."""
    faults = extract(world, bombs.make_archive(small=1_500 if LONG else 20), ANY[name], name)
    assert (faults > 0) is (ANY[name].times != 0)


@pytest.mark.parametrize("act", [Act.LOSE, Act.ERROR_BODY])
def test_ambiguous_complete(world: World, act: Act) -> None:
    """An upload whose Complete was answered by nothing, or by 200 with an error, is settled."""
    rule = Rule(act, kinds=("complete",), times=3, code="InternalError")
    assert extract(world, bombs.make_archive(small=5), rule, f"complete.{act}") == 3


def test_never_a_mix(world: World) -> None:
    """An archive that is overwritten or deleted is extracted from one version, or not at all."""
    first, second = bombs.make_archive(small=40, seed=1), bombs.make_archive(small=40, seed=2)
    want, dice = expected_listing(first), random.Random(7)
    world.put_archive(first)
    world.run()
    requests = len(world.proxy.take_records())
    verdicts: Counter[Verdict] = Counter()
    seconds = []
    for number in range(200 if LONG else 2):
        changes: list[float] = []

        def change(number: int = number, changes: list[float] = changes) -> None:
            if number % 10 == 9:
                world.client.delete_object(Bucket=SOURCE, Key=KEY)
            else:
                world.put_archive(second)
            changes.append(time.monotonic())

        world.clear()
        world.put_archive(first)
        # The first request is the planner's: what comes before it is just another archive.
        hold = Rule(Act.HOLD, after=dice.randrange(1, requests), times=1)
        world.proxy.set_rules(hold, on_hold=change)
        try:
            verdict = world.run().verdict
        except errors.SourceChangedError:  # the plan could not be made
            verdict = Verdict.SOURCE_CHANGED
        found = world.listing()
        verdicts[verdict] += 1
        assert (verdict, found.items() <= want.items(), world.uploads()) in {
            (Verdict.COMPLETED, True, 0),
            (Verdict.SOURCE_CHANGED, True, 0),
        }
        if verdict is Verdict.COMPLETED:
            assert found == want
        else:
            seconds.append(time.monotonic() - changes[0])
    _say("overwrites", **{verdict.value: count for verdict, count in verdicts.items()})
    if seconds:
        ordered = sorted(seconds)
        _say("overwrites.seconds", p50=ordered[len(ordered) // 2], max=ordered[-1])


@pytest.mark.parametrize("members", [500, 10_000] if LONG else [1_000])
@pytest.mark.parametrize(
    ("rule", "in_mid_run"),
    [(MEMBERS, False), (MEMBERS, True), (ARCHIVE, False), (KMS, True)],
    ids=["at the start", "in mid-run", "on the source", "by KMS"],
)
def test_a_missing_right_is_asked_for_a_few_times(
    world: World, rule: Rule, members: int, *, in_mid_run: bool
) -> None:
    """The run stops at the first 403 of a kind, says so, and `resume` completes it."""
    archive = bombs.make_archive(small=members, large=False, size=200)
    world.put_archive(archive)
    after = members // 3 if in_mid_run else int(rule is ARCHIVE)
    world.proxy.set_rules(
        Rule(rule.act, rule.kinds, rule.within, 1.0, after, None, rule.status, rule.code)
    )
    run = ""
    try:
        report = world.run(tuning=settings.Tuning(), processes=2)
    except errors.AccessDeniedError:  # the plan could not be made
        pass
    else:
        run = report.run
        assert (report.verdict, report.reason) == (Verdict.FAILED, "access-denied")
    records = world.proxy.take_records()
    first = next(place for place, record in enumerate(records) if record.fault)
    later = sum(not record.path.startswith("/work/") for record in records[first + 1 :])
    _say(f"denied.{rule.code}.{members}", requests_after=later)
    assert later < 100
    world.proxy.set_rules()
    if run:
        check_complete(world, world.resume(run), archive)


def test_tasks_done_twice_at_once(world: World) -> None:
    """Two workers with the same task do not get into each other's way."""
    archive, done = bombs.make_archive(small=300), 0
    while done < (200 if LONG else 10):
        world.clear()
        world.put_archive(archive)
        one, other = world.maker()(Clock()), world.maker()(Clock())
        step = begin_run(world.request(), one)
        while step.report is None:
            done += _do_twice(step.next.run, step.next.tasks, one, other)
            step = settle(step.next, one)
        check_complete(world, step.report, archive)
    _say("twins", tasks=done)


def _do_twice(name: str, tasks: tuple[Task, ...], one: Context, other: Context) -> int:
    records = RunRecords.open(one.stores, name)
    run = records.read_plan().run
    listed = tasks or tuple(records.read_round(records.list_rounds()[-1]))
    with ThreadPoolExecutor(2) as pool:
        for task in listed:
            list(pool.map(partial(_try, run, task), (one, other)))
    return len(listed)


def _try(run: Run, task: Task, context: Context) -> None:
    """Do one task; after a fault it is in the next round."""
    with suppress(errors.ServiceFaultError):
        run_task(run, task, context)


@pytest.mark.parametrize("name", bombs.ALL if LONG else bombs.SOME)
def test_a_bomb_is_refused_within_budget(world: World, name: str) -> None:
    """No byte of it stays, and finding out costs less than a tenth of a cent."""
    world.put_archive(bombs.ALL[name]())
    started = time.monotonic()
    report = world.run(policy=bombs.POLICY)
    seconds = time.monotonic() - started
    records = world.proxy.take_records()
    sent = sum(record.sent for record in records if record.path.startswith(f"/{DESTINATION}/"))
    dollars = bombs.cost_of(records, seconds)
    _say(f"bombs.{name}", seconds=seconds, bytes_sent=sent, dollars=dollars)
    assert report.verdict is Verdict.REJECTED or (report.failed, report.extracted) == (1, 0)
    assert sum(entry.size for entry in world.listing().values()) == 0
    assert sent <= BUDGET_BYTES
    assert dollars <= BUDGET_DOLLARS


def test_two_runs_to_the_same_keys(world: World) -> None:
    """A run that ends does not drop the uploads of another one to the same keys."""
    old, new = bombs.make_archive(small=10, seed=1), bombs.make_archive(small=10, seed=2)
    world.put_archive(old)
    reports = []

    def overtake() -> None:
        world.put_archive(new)
        reports.append(world.run())

    world.proxy.set_rules(Rule(Act.HOLD, kinds=("part",), times=1), on_hold=overtake)
    late = world.run()
    assert reports[0].verdict is Verdict.COMPLETED
    assert late.verdict in {Verdict.SOURCE_CHANGED, Verdict.COMPLETED}
    both = (expected_listing(old), expected_listing(new))
    assert all(entry in (both[0][key], both[1][key]) for key, entry in world.listing().items())
    assert world.uploads() == 0


OF_RECORDS = {"get", "put", "list", "delete"}


def count(records: Iterable[Record]) -> dict[str, int]:
    """Return how many requests of each kind a run sent.

    The HEAD by which the command sees that a bucket is there is no request of the run.
    """
    return dict(
        Counter(
            record.kind
            for record in records
            if record.kind != "head" or record.path.strip("/").count("/")
        )
    )


def _agree(report: Report, found: dict[str, int]) -> bool:
    told = {
        kind: count
        for kind, count in asdict(report.requests).items()
        if count and kind not in {"retries", "throttled"}
    }
    assert {kind: count for kind, count in told.items() if kind not in OF_RECORDS} == {
        kind: count for kind, count in found.items() if kind not in OF_RECORDS
    }
    return all(told.get(kind, 0) <= found.get(kind, 0) for kind in OF_RECORDS)


@pytest.mark.parametrize(
    ("small", "large", "kinds"),
    [
        pytest.param(120, False, {"batch"}, id="small"),
        pytest.param(20, True, {"batch", "stream", "copy", "scan"}, id="large"),
    ],
)
def test_counts_of_every_kind_of_task(
    world: World, small: int, kinds: set[str], *, large: bool
) -> None:
    """Plan, scans, link, copies of two tasks and report are counted; every object is right."""
    archive = bombs.make_archive(small=small, large=large)
    world.put_archive(archive)
    report = world.run(processes=2, tuning=replace(bombs.TUNING, copy_task_bytes=6 * settings.MIB))
    assert _agree(report, count(world.proxy.take_records()))
    check_complete(world, report, archive)
    assert (
        set(RunRecords.open(world.maker()(Clock()).stores, report.run).read_plan().kinds) == kinds
    )


def test_counts_of_a_run_that_finds_all_unchanged(world: World) -> None:
    """Pages of LIST and HEADs are counted one by one; no member is written again.

    What the first run sent is on the proxy's record, which bounds what a bomb may send.
    """
    world.put_archive(bombs.make_archive(small=1_100, large=False, size=60))
    tuning = settings.Tuning(batch_members=5_000, max_workers=1)
    written = world.run(tuning=tuning)
    assert sum(record.sent for record in world.proxy.take_records()) > written.bytes_out
    report = world.run(options=Options(on_conflict=OnConflict.SKIP_UNCHANGED), tuning=tuning)
    records = world.proxy.take_records()
    assert not any(one.kind == "put" and "/archive/" in one.path for one in records)
    found = count(records)
    assert (report.unchanged, found["list"] >= 2) == (1_100, True)
    assert _agree(report, found)


@pytest.mark.parametrize(
    "rule",
    [
        Rule(Act.ANSWER, chance=0.1),
        Rule(Act.LOSE, chance=0.1),
        Rule(Act.RESET, chance=0.1),
        Rule(Act.STALL, chance=0.1, seconds=0.05),
        Rule(Act.TRUNCATE, ("get", "list", "create", "complete"), chance=0.3),
    ],
    ids=lambda rule: str(rule.act),
)
def test_counts_of_a_run_with_faults(world: World, rule: Rule) -> None:
    """Each attempt is counted, also those of records; no broken answer is taken for an answer."""
    world.put_archive(bombs.make_archive(small=60))
    world.proxy.set_rules(rule)
    report = world.run()
    assert _agree(report, count(world.proxy.take_records()))
    assert (report.verdict, report.requests.retries > 0) == (Verdict.COMPLETED, True)


def test_requests_of_deleting_what_is_extra(world: World) -> None:
    """Somebody is asked once about all of it; pages of 1,000 are deleted; members stay."""
    world.put_archive(bombs.make_archive(small=20, large=False))
    report = world.run()
    for number in range(1_100):
        world.client.put_object(Bucket=DESTINATION, Key=f"archive/extra/{number}", Body=b"")
    world.proxy.take_records()
    found: list[StoredObject] = []

    def confirm(extra: Sequence[StoredObject]) -> bool:
        found.extend(extra)
        return True

    report = clear_extra(report, world.maker()(Clock()), confirm)
    requests = count(world.proxy.take_records())
    assert min(requests["list"], requests["delete"]) >= 2
    assert (len(found), len(world.listing()), report.extracted) == (1_100, 20, 20)
