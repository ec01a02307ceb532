"""Direct runs whose function is killed, whose event comes often, whose archive is replaced."""

from __future__ import annotations

import random

import pytest

from s3unzip.model import Verdict
from tests.simulation.archives import make_archive
from tests.simulation.direct import Account, FaultAt, OvertakenAt, make_recipe
from tests.simulation.faults import Fault
from tests.simulation.scheduler import START

KILLS, OVERWRITES, STEP = 100, 50, 10
COMPLETED = Verdict.COMPLETED.value
AT_ONCE = 10.0  # seconds of the simulated clock: nothing waits for the time of a function to end


def contents(version: int = 0, *, larger: bool = False) -> dict[str, bytes]:
    """Return the objects that a version of the archive leads to."""
    facts = make_archive(make_recipe(version, larger=larger))[1]
    return {one.key: one.body for one in facts.members}


def count_calls(fault: Fault, *, larger: bool = False) -> int:
    """Return at how many calls of an undisturbed run the fault could happen."""
    faults = FaultAt(random.Random(0), fault=fault)
    account = Account(0, faults, larger)
    account.run(versions=2 if fault is Fault.OVERWRITE else 1)
    assert account.objects == contents(larger=larger)
    assert account.executions == 0
    return faults.calls


def times_written(account: Account) -> set[int]:
    """Return how often the members were written."""
    return {
        times for state in account.world.model.runs.values() for times in state.written.values()
    }


@pytest.mark.parametrize("first", range(0, KILLS, STEP))
def test_kills_at_any_call_end_in_the_same_state(first: int) -> None:
    """Before or after its effect, the members are all there, and the run has one event.

    Only a function that is killed between its event and its end sends a second one.
    """
    counts = {fault: count_calls(fault) for fault in (Fault.CRASH, Fault.CRASH_AFTER)}
    for seed in range(first, first + STEP):
        rng = random.Random(seed)
        fault = rng.choice(list(counts))
        account = Account(seed, FaultAt(rng, fault=fault, at=rng.randint(1, counts[fault])))
        account.run()
        (killed,) = account.faults.injected
        assert account.objects == contents(), seed
        assert times_written(account) <= {1, 2}, seed
        (told,) = account.announced
        assert set(told) == {COMPLETED}, seed
        after_event = killed == f"{Fault.CRASH_AFTER} put events"
        assert len(told) == 1 + after_event, (seed, killed)


@pytest.mark.parametrize("events", [2, 5])
@pytest.mark.parametrize("first", range(0, 50, STEP))
def test_duplicates_at_once_are_one_run(first: int, events: int) -> None:
    """Each member is written once, one event is sent, and no message waits for the run to end."""
    for seed in range(first, first + STEP):
        account = Account(seed)
        account.run(events=events)
        assert account.objects == contents(), seed
        assert times_written(account) == {1}, seed
        assert account.announced == [[COMPLETED]], seed
        assert account.executions == 0, seed
        assert account.world.scheduler.now < START + AT_ONCE, seed


def test_late_duplicates_send_no_event() -> None:
    """Not within the function's time, and not after it."""
    for seed in range(STEP):
        account = Account(seed)
        account.run(late=(1.0, 30.0, 300.0))
        assert times_written(account) == {1}, seed
        assert account.announced == [[COMPLETED]], seed


@pytest.mark.parametrize("first", range(0, KILLS, STEP))
def test_duplicates_of_a_killed_function(first: int) -> None:
    """Whether a duplicate comes at once or late, the run ends, and has one event."""
    calls = count_calls(Fault.CRASH)
    for seed in range(first, first + STEP):
        rng = random.Random(seed)
        account = Account(seed, FaultAt(rng, fault=Fault.CRASH, at=rng.randint(1, calls)))
        account.run(events=2, late=(rng.choice((30.0, 70.0, 500.0)),))
        assert account.objects == contents(), seed
        assert account.announced == [[COMPLETED]], seed


@pytest.mark.parametrize("larger", [False, True])
@pytest.mark.parametrize("first", range(0, OVERWRITES, STEP))
def test_an_archive_that_is_replaced(first: int, *, larger: bool) -> None:
    """Both runs end with one event each, and every object is a whole member of one version.

    A run that has not read its archive whole finds it changed, in a bucket without versions.
    """
    calls = count_calls(Fault.OVERWRITE, larger=larger)
    for seed in range(first, first + STEP):
        rng = random.Random(seed)
        fault = FaultAt(rng, fault=Fault.OVERWRITE, at=rng.randint(1, calls))
        account = Account(seed, fault, larger)
        account.run(versions=2)
        assert account.faults.injected, seed
        assert [COMPLETED] in account.announced, seed
        ends = ([COMPLETED], [Verdict.SOURCE_CHANGED.value])
        assert all(told in ends for told in account.announced), (seed, account.announced)
        old, new = contents(0, larger=larger), contents(1, larger=larger)
        assert account.objects.keys() == new.keys(), seed
        assert all(body in {old[key], new[key]} for key, body in account.objects.items()), seed
        assert larger or account.executions == 0, seed


@pytest.mark.parametrize("seed", range(STEP))
def test_a_run_that_is_overtaken(seed: int) -> None:
    """The older run waits for 40 s while the newer one ends; the newest archive stays."""
    repaired = 0
    for at in range(1, 12):
        account = Account(seed, OvertakenAt(random.Random(seed), at=at))
        account.run(versions=2)
        assert account.objects == contents(1), (seed, account.faults.injected)
        repaired += len(account.announced) == 3
    assert repaired  # in some of them the older run wrote members late
