"""Experiments over runs through the proxy: what fails, changes or comes twice, and what is left.

Requests are refused, reset and cut short at a rate; rights are taken away; the archive is replaced
or deleted; tasks are done twice at once; a second run finds its members.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

from s3unzip.context import Context
from s3unzip.errors import AccessDeniedError, ServiceFaultError
from s3unzip.extraction.task import run_task
from s3unzip.model import OnConflict, Options, Run, Task, Verdict
from s3unzip.runs.records import RunRecords
from s3unzip.settings import Tuning
from s3unzip.settling.loop import begin, settle
from s3unzip.stores.clock import LocalClock
from tests.faults.archives import make_archive
from tests.faults.figures import Figure, spread
from tests.faults.proxy import WRITES, Act, Record, Rule
from tests.faults.stores import DESTINATION, SOURCE, WORK
from tests.faults.world import KEY, Listing, World, expected_listing

FAULTS = {
    "503": Rule(Act.ANSWER, status=503, code="SlowDown"),
    "500": Rule(Act.ANSWER, status=500, code="InternalError"),
    "reset": Rule(Act.RESET),
    "truncated": Rule(Act.TRUNCATE),
    "lost_answer": Rule(Act.LOSE),
}

NOTHING = Rule(Act.RESET, times=0)
DENIED = Rule(Act.ANSWER, kinds=WRITES, within="/members/", status=403, code="AccessDenied")
READ = Rule(Act.ANSWER, kinds=("get",), within="/ingest/", after=1, status=403, code="AccessDenied")
KMS = Rule(Act.ANSWER, kinds=WRITES, within="/members/", status=400, code="KMS.DisabledException")


def measure_rates(world: World, rates: tuple[float, ...], small: int) -> Iterator[Figure]:
    """Yield lost members, slow-down and extra requests by kind of fault and rate."""
    archive = make_archive(small=small)
    want = expected_listing(archive)
    yield from measure_rule(world, archive, want, NOTHING, "warm", None)
    base = yield from measure_rule(world, archive, want, NOTHING, "none", None)
    for name, rule in FAULTS.items():
        for rate in rates:
            label = f"{name}.{rate * 100:g}%"
            yield from measure_rule(world, archive, want, _at(rule, rate), label, base)


def measure_once(world: World) -> Iterator[Figure]:
    """Yield what single, nasty faults do: lost and ambiguous Completes, flipped bytes, stalls."""
    archive = make_archive(small=100)
    want = expected_listing(archive)
    cases = {
        "lost_complete": Rule(Act.LOSE, kinds=("complete",), times=3),
        "error_in_200": Rule(Act.ERROR_BODY, kinds=("complete",), times=3, code="InternalError"),
        "flipped_put": Rule(Act.FLIP, kinds=("put",), within="/members/", chance=0.1),
        "flipped_part": Rule(Act.FLIP, kinds=("part",), times=2),
        "stalled": Rule(Act.STALL, kinds=("get", "put", "part"), chance=0.01, seconds=8),
        "kms_throttled": Rule(
            Act.ANSWER, kinds=("put",), chance=0.1, status=400, code="KMS.ThrottlingException"
        ),
    }
    for name, rule in cases.items():
        yield from measure_rule(world, archive, want, rule, name, None)


def _at(rule: Rule, rate: float) -> Rule:
    return Rule(rule.act, chance=rate, status=rule.status, code=rule.code)


def measure_rule(
    world: World,
    archive: bytes,
    want: Listing,
    rule: Rule,
    label: str,
    base: tuple[float, int] | None,
) -> Generator[Figure, None, tuple[float, int]]:
    """Yield the figures of one run; return its seconds and requests."""
    world.clear()
    world.put_archive(archive)
    world.proxy.set_rules(rule)
    started = time.monotonic()
    report = world.run()
    seconds = time.monotonic() - started
    records = world.proxy.take_records()
    hit = sum(1 for record in records if record.fault)
    found = world.listing()
    lost = sum(1 for key, entry in want.items() if found.get(key) != entry)
    whole = report.verdict is Verdict.COMPLETED and found == want
    if label != "warm":
        yield Figure(f"{label}.lost_members", lost, "members")
        yield Figure(f"{label}.whole", float(whole), "of 1")
        yield Figure(f"{label}.uploads_left", world.uploads(), "uploads")
        yield Figure(f"{label}.faults", hit, "requests")
        yield Figure(f"{label}.seconds", seconds, "s")
    if base is not None:
        yield Figure(f"{label}.slow_down", seconds / base[0], "x")
        yield Figure(f"{label}.requests", len(records) / base[1], "x")
    return seconds, len(records)


def measure_denials(world: World, sizes: tuple[int, ...]) -> Iterator[Figure]:
    """Yield requests after the first 403, for archives of so many members, default settings."""
    for small in sizes:
        archive = make_archive(small=small, large=False, size=300)
        moments = {
            "write.start": DENIED,
            "write.middle": after(DENIED, small // 3),
            "read.middle": READ,
            "kms.middle": after(KMS, small // 3),
        }
        for name, rule in moments.items():
            yield from measure_denial(world, archive, rule, f"denied.{name}.{small}_members")


def after(rule: Rule, requests: int) -> Rule:
    """Return `rule` for when so many requests went well."""
    return Rule(
        rule.act, rule.kinds, rule.within, after=requests, status=rule.status, code=rule.code
    )


def measure_denial(world: World, archive: bytes, rule: Rule, label: str) -> Iterator[Figure]:
    """Yield what a run with `rule` asks after its first no, and what a redrive makes of it."""
    world.clear()
    world.put_archive(archive)
    world.proxy.set_rules(rule)
    run = ""
    try:
        report = world.run(tuning=Tuning())
    except AccessDeniedError:
        denied = True
    else:
        run = report.run
        denied = report.verdict is Verdict.FAILED and report.reason == "access-denied"
    later = records_after(world.proxy.take_records(), rule.act)
    data = sum(not record.path.startswith(f"/{WORK}/") for record in later)
    yield Figure(f"{label}.requests_after", data, "requests")
    yield Figure(f"{label}.work_requests_after", len(later) - data, "requests")
    yield Figure(f"{label}.told", float(denied), "of 1")
    world.proxy.set_rules()
    if run:
        again = world.resume(run)
        whole = again.verdict is Verdict.COMPLETED and world.listing() == expected_listing(archive)
        yield Figure(f"{label}.whole_after_redrive", float(whole), "of 1")


def records_after(records: list[Record], act: Act) -> list[Record]:
    """Return what was answered after the first request that `act` was done to."""
    first = next((n for n, record in enumerate(records) if record.fault == act), len(records))
    return records[first + 1 :]


@dataclass(slots=True)
class _Tally:
    mixed: int = 0
    wrong: int = 0
    changed: int = 0
    completed: int = 0
    left: int = 0
    seconds: list[float] = field(default_factory=list)


def measure_overwrites(world: World, times: int, seed: int = 7) -> Iterator[Figure]:
    """Yield what `times` overwrites at random moments came to; each tenth is a deletion."""
    first, second = make_archive(small=40, seed=1), make_archive(small=40, seed=2)
    want = expected_listing(first)
    world.clear()
    world.put_archive(first)
    world.run()
    requests = len(world.proxy.take_records())
    dice = random.Random(seed)
    tally = _Tally()
    for number in range(times):
        world.clear()
        world.put_archive(first)
        instead = None if number % 10 == 9 else second
        # The first request is the planner's: what comes before it is just another archive.
        _change_once(world, want, instead, dice.randrange(1, requests), tally)
    yield Figure("overwrites", times, "runs")
    yield Figure("overwrites.deletes_among", times // 10, "runs")
    yield Figure("overwrites.mixed", tally.mixed, "runs")
    yield Figure("overwrites.wrong_verdicts", tally.wrong, "runs")
    yield Figure("overwrites.source_changed", tally.changed, "runs")
    yield Figure("overwrites.completed_before", tally.completed, "runs")
    yield Figure("overwrites.uploads_left", tally.left, "uploads")
    yield from spread("overwrites.seconds_to_verdict", tally.seconds, "s")


def _change_once(
    world: World, want: Listing, instead: bytes | None, moment: int, tally: _Tally
) -> None:
    """Run once; at the request number `moment` put `instead`, or delete where it is None."""
    changed_at: list[float] = []

    def change() -> None:
        if instead is None:
            world.client.delete_object(Bucket=SOURCE, Key=KEY)
        else:
            world.put_archive(instead)
        changed_at.append(time.monotonic())

    world.proxy.set_rules(Rule(Act.HOLD, after=moment, times=1), on_hold=change)
    verdict = world.run_to_verdict()
    ended = time.monotonic()
    found = world.listing()
    tally.left += world.uploads()
    tally.mixed += any(want.get(key) != entry for key, entry in found.items())
    if verdict is Verdict.COMPLETED:
        tally.completed += 1
        tally.wrong += found != want
    elif verdict is Verdict.SOURCE_CHANGED and changed_at:
        tally.changed += 1
        tally.seconds.append(ended - changed_at[0])
    else:
        tally.wrong += 1


def measure_reruns(world: World, members: int) -> Iterator[Figure]:
    """Yield what a run costs that finds all its members there, by the rule on conflicts."""
    archive = make_archive(small=members, large=False, size=200)
    want = expected_listing(archive)
    world.clear()
    world.put_archive(archive)
    world.run(tuning=Tuning())
    world.proxy.take_records()
    for rule in (OnConflict.SKIP_UNCHANGED, OnConflict.NEVER):
        report = world.run(options=Options(on_conflict=rule), tuning=Tuning())
        kinds = Counter(
            record.kind
            for record in world.proxy.take_records()
            if record.path.startswith(f"/{DESTINATION}")
        )
        label = f"rerun.{rule.value}"
        yield Figure(f"{label}.unchanged", report.unchanged, "members")
        for kind in ("list", "head", "put"):
            yield Figure(f"{label}.{kind}", kinds[kind], "requests")
        yield Figure(f"{label}.whole", float(world.listing() == want), "of 1")


def measure_twins(world: World, times: int) -> Iterator[Figure]:
    """Yield what is left when every task is done twice at once, `times` tasks in all."""
    archive = make_archive(small=300)
    want = expected_listing(archive)
    done = runs = equal = left = 0
    while done < times:
        world.clear()
        world.put_archive(archive)
        maker = world.maker()
        one, other = maker(LocalClock()), maker(LocalClock())
        step = begin(world.request(), one)
        while step.report is None:
            done += _do_twice(step.next.run, step.next.tasks, one, other)
            step = settle(step.next, one)
        report = step.report
        runs += 1
        equal += report.verdict is Verdict.COMPLETED and world.listing() == want
        left += world.uploads()
    yield Figure("twins", done, "tasks")
    yield Figure("twins.runs", runs, "runs")
    yield Figure("twins.equal_runs", equal, "runs")
    yield Figure("twins.uploads_left", left, "uploads")


def _do_twice(name: str, tasks: tuple[Task, ...], one: Context, other: Context) -> int:
    """Do each task of a round in two threads at once; return how many there were."""
    records = RunRecords.open(one.stores, name)
    run, done = records.read_plan().run, 0
    with ThreadPoolExecutor(2) as pool:
        for task in tasks or records.read_round(records.list_rounds()[-1]):
            list(pool.map(partial(_try, run, task), (one, other)))
            done += 1
    return done


def _try(run: Run, task: Task, context: Context) -> None:
    """Do one task, up to four times, as a state machine does."""
    for attempt in range(4):
        try:
            run_task(run, task, context)
        except ServiceFaultError:
            if attempt == 3:
                raise
        else:
            return
