"""The door: runs wait for workers, share them, and give them back, whatever fails."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import pytest
from botocore.exceptions import ClientError
from msgspec.structs import replace
from s3unzip.aws.admission.bids import planned_bid, unplanned_bid
from s3unzip.aws.admission.door import OLD_SECONDS, Door, Start, limit_workers
from s3unzip.aws.admission.ledger import (
    Entry,
    Ledger,
    read_entry,
    read_ledger,
    write_entry,
)
from s3unzip.direct.memory_store import MemoryRunStore
from s3unzip.runs.shares import Bid

from s3unzip.aws.environment import open_worker
from s3unzip.settings import Variable
from tests.unit.aws.samples import PLAN, RUN

if TYPE_CHECKING:
    from mypy_boto3_stepfunctions import SFNClient

    from tests.account import Account

MACHINE = "arn:aws:states:us-east-1:123456789012:stateMachine:runs"
EXECUTION = MACHINE.replace("stateMachine", "execution")


def planned(workers: int, slices: int = 0) -> dict[str, Any]:
    """Return the fields of a planned execution's input that say how many workers it has."""
    return {
        "split_members": slices,
        "concurrency": workers + slices,
        "whole_at_once": workers,
        "scans_at_once": max(1, slices),
        "slices_at_once": max(1, slices),
        "overlap": False,
    }


INPUT = planned(100)


class ExistsError(ClientError):
    """As Step Functions says that a name was used."""


class MissingError(ClientError):
    """As Step Functions says that there is no such execution."""


def fault(code: str, kind: type[ClientError] = ClientError) -> ClientError:
    """Return an answer of Step Functions."""
    return kind({"Error": {"Code": code, "Message": "said so"}}, "Any")


@dataclass(slots=True)
class Execution:
    """One execution: its input, its status, and the concurrency of the Map Run at work."""

    input: dict[str, Any]
    status: str = "RUNNING"
    concurrency: int | None = None


@dataclass(slots=True)
class States:
    """Step Functions, as far as the door asks it; executions run until a test ends them."""

    executions: dict[str, Execution] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)  # calls that are refused

    class exceptions:  # noqa: N801 - botocore's name
        """The modelled errors."""

        ExecutionAlreadyExists = ExistsError
        ExecutionDoesNotExist = MissingError

    def _answer(self, call: str) -> None:
        if call in self.broken:
            raise fault("ThrottlingException")

    def start_execution(self, *, stateMachineArn: str, name: str, input: str) -> None:  # noqa: A002, N803
        """Start an execution, once for each name."""
        self._answer("start_execution")
        assert stateMachineArn == MACHINE
        if name in self.executions:
            raise fault("ExecutionAlreadyExists", ExistsError)
        told = json.loads(input)
        self.executions[name] = Execution(told, concurrency=told.get("whole_at_once"))

    def describe_execution(self, *, executionArn: str) -> dict[str, str]:  # noqa: N803
        """Return an execution's status."""
        self._answer("describe_execution")
        name = executionArn.removeprefix(f"{EXECUTION}:")
        if name not in self.executions:
            raise fault("ExecutionDoesNotExist", MissingError)
        return {"status": self.executions[name].status}

    def list_map_runs(self, *, executionArn: str) -> dict[str, Any]:  # noqa: N803
        """Return a Map Run that has ended, and the one at work if there is one."""
        name = executionArn.removeprefix(f"{EXECUTION}:")
        ended = {"mapRunArn": "ended", "stopDate": 1}
        at_work = [{"mapRunArn": name}] if self.executions[name].concurrency else []
        return {"mapRuns": [ended, *at_work]}

    def update_map_run(self, *, mapRunArn: str, maxConcurrency: int) -> None:  # noqa: N803
        """Change the concurrency of a Map Run."""
        self._answer("update_map_run")
        self.executions[mapRunArn].concurrency = maxConcurrency


@dataclass(slots=True)
class Clock:
    """A time that tests set."""

    time: float = 10_000.0

    def now(self) -> float:
        """Return Unix seconds."""
        return self.time

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.time += seconds

    def remaining(self) -> float:
        """Return the seconds that are left."""
        return 60.0


@dataclass(slots=True)
class World:
    """An environment of so many workers."""

    workers: int
    states: States = field(default_factory=States)
    store: MemoryRunStore = field(default_factory=MemoryRunStore)
    clock: Clock = field(default_factory=Clock)
    reminders: list[float] = field(default_factory=list)

    @property
    def door(self) -> Door:
        """The door, as one invocation opens it."""
        return Door(
            self.store,
            cast("SFNClient", self.states),
            MACHINE,
            self.workers,
            self.clock,
            lambda: self.reminders.append(self.clock.time),
        )

    @property
    def ledger(self) -> Ledger:
        """What is written down."""
        return read_ledger(self.store)

    @property
    def running(self) -> dict[str, int | None]:
        """The executions at work, with their concurrency."""
        found = self.states.executions.items()
        return {name: one.concurrency for name, one in found if one.status == "RUNNING"}

    def end(self, run: str, status: str = "SUCCEEDED") -> None:
        """End an execution; the report function releases it."""
        self.states.executions[run].status = status
        self.door.release(run)


def bid(number: int, workers: int = 8, tenant: str = "") -> Bid:
    """Return the bid of a run."""
    return Bid(f"run-{number}", tenant, workers, order=float(number))


def test_an_entry_is_read_as_it_was_written() -> None:
    """Its name has all of the bid; what is no entry is passed over."""
    entry = Entry(Bid("a~b-1", "teams/ä~/", 100, 1.5, 0.25, 17.0), 20, 7)
    assert read_entry(entry.name) == entry
    assert read_entry(entry._replace(share=0).name) == entry._replace(share=0)
    for name in ("held/1~2", "other/1~2~3~4~5~6~~r", "held/x~2~3~4~5~6~~r"):
        assert read_entry(name) is None


def test_a_run_alone_starts_at_once() -> None:
    """It gets what it wants, and a repeated event starts nothing."""
    world = World(800)
    assert world.door.start(bid(1, 100), INPUT) is Start.STARTED
    assert world.door.start(bid(1, 100), INPUT) is Start.KNOWN
    assert world.states.executions["run-1"].input == INPUT
    assert world.ledger.held["run-1"].share == 100
    world.end("run-1")
    assert world.store.objects == {}


def test_runs_wait_and_start_in_order() -> None:
    """A run that ends lets the next one in; each is started once, and the last leaves nothing."""
    world = World(16)
    starts = [world.door.start(bid(n), INPUT) for n in range(10)]
    admitted = [f"run-{n}" for n, start in enumerate(starts) if start is Start.STARTED]
    assert admitted == ["run-0", "run-1", "run-2", "run-3"]
    assert starts[4:] == [Start.WAITING] * 6
    assert world.door.start(bid(7), INPUT) is Start.WAITING
    assert len(world.ledger.waiting) == 6
    done: list[str] = []
    while world.running:
        done += list(world.running)[:1]
        world.end(done[-1])
        assert len(world.running) <= 4
    assert done == [f"run-{n}" for n in range(10)]
    assert world.store.objects == {}


def test_a_run_that_waits_has_the_share_of_its_start() -> None:
    """Its concurrency is that of the workers that it gets, not what its plan asked for."""
    world = World(4)
    for number in range(9):
        world.door.start(bid(number), INPUT)
    world.end("run-0")
    (last,) = set(world.running) - {f"run-{n}" for n in range(4)}
    told = world.states.executions[last].input
    assert (told["concurrency"], told["whole_at_once"]) == (1, 1)


@pytest.mark.parametrize(
    ("share", "whole", "slices"), [(200, 60, 40), (100, 60, 40), (10, 6, 4), (2, 1, 1), (1, 1, 1)]
)
def test_both_sides_of_a_run_have_their_part(share: int, whole: int, slices: int) -> None:
    """Small members and split members share what the run has, and each has a worker."""
    told = limit_workers(planned(60, 40), share)
    assert (told["whole_at_once"], told["slices_at_once"]) == (whole, slices)
    assert told["scans_at_once"] == slices
    assert told["concurrency"] == min(share, 100)


@pytest.mark.parametrize(("share", "overlap"), [(200, True), (100, True), (99, False), (1, False)])
def test_slices_overlap_the_scans_only_with_all_workers(share: int, *, overlap: bool) -> None:
    """With fewer workers than planned, slices would wait for scans that wait for a worker."""
    assert limit_workers({**planned(60, 40), "overlap": True}, share)["overlap"] is overlap
    assert limit_workers(planned(60, 40), share)["overlap"] is False
    older = {name: value for name, value in planned(60, 40).items() if name != "overlap"}
    assert limit_workers(older, share)["overlap"] is False


def test_split_members_alone_have_all_workers() -> None:
    """Where nothing is beside them, no worker is kept for it."""
    alone = {**planned(1, 40), "inline": {"whole": []}, "overlap": True}
    told = limit_workers(alone, 40)
    assert (told["scans_at_once"], told["slices_at_once"], told["overlap"]) == (40, 40, True)
    assert limit_workers(alone, 39)["overlap"] is False


def test_a_run_without_a_plan_starts_no_more_workers_than_it_has() -> None:
    """Those are started while it is planned; an older input does not name them."""
    assert limit_workers({"planned": False, "warm": [0, 1, 2]}, 2)["warm"] == [0, 1]
    assert limit_workers({"planned": False}, 2) == {"planned": False}


def test_shares_follow_the_runs() -> None:
    """A giant gives workers to a second one, and gets them back; small changes are not told."""
    world = World(800)
    world.door.start(bid(1, 800), planned(800))
    world.door.start(bid(2, 800), planned(800))
    assert world.running == {"run-1": 400, "run-2": 400}
    world.door.start(bid(3, 20), planned(20))
    assert world.running == {"run-1": 400, "run-2": 400, "run-3": 20}
    world.end("run-2")
    assert world.running == {"run-1": 780, "run-3": 20}
    assert world.ledger.held["run-1"].share == 780


def test_a_share_that_cannot_be_told_is_told_later() -> None:
    """Neither a refused call nor an execution between two Maps stops anybody."""
    world = World(800)
    world.door.start(bid(1, 800), planned(800))
    world.states.broken = {"update_map_run"}
    world.door.start(bid(2, 800), planned(800))
    assert world.running["run-1"] == 800
    world.states.broken = set()
    world.states.executions["run-1"].concurrency = None  # no Map Run at work
    world.door.balance()
    assert world.ledger.held["run-1"].share == 800
    world.states.executions["run-1"].concurrency = 800
    world.door.balance()
    assert world.running["run-1"] == 400


def test_what_cannot_be_started_goes_on_waiting() -> None:
    """A refusal of Step Functions loses no run, and holds no workers."""
    world = World(1)
    world.door.start(bid(1), INPUT)
    world.door.start(bid(2), INPUT)
    world.states.broken = {"start_execution"}
    world.end("run-1")
    assert (list(world.ledger.held), list(world.ledger.waiting)) == ([], ["run-2"])
    with pytest.raises(ClientError):
        world.door.start(bid(0), INPUT)
    assert list(world.ledger.held) == []
    world.states.broken = set()
    world.door.look()
    assert list(world.running) == ["run-2"]


def test_a_run_that_is_known_holds_nothing() -> None:
    """The event of an archive whose run has ended."""
    world = World(8)
    world.door.start(bid(1), INPUT)
    world.end("run-1")
    assert world.door.start(bid(1), INPUT) is Start.KNOWN
    assert world.store.objects == {}


def test_a_reminder_is_sent_while_runs_wait() -> None:
    """By the first that waits, and again by each reminder until none waits."""
    world = World(1)
    for number in range(3):
        world.door.start(bid(number), INPUT)
    assert world.reminders == [10_000.0]
    world.clock.time += 300
    world.door.look()
    assert world.reminders == [10_000.0, 10_300.0]
    for number in range(3):
        world.end(f"run-{number}")
    world.door.look()
    assert len(world.reminders) == 2


@pytest.mark.parametrize("forgotten", [False, True])
def test_workers_of_a_run_that_was_lost_come_back(*, forgotten: bool) -> None:
    """An execution ended without the report function, or is not there at all."""
    world = World(1)
    world.door.start(bid(1), INPUT)
    world.door.start(bid(2), INPUT)
    world.states.executions["run-1"].status = "ABORTED"
    if forgotten:
        del world.states.executions["run-1"]
    world.door.look()
    assert list(world.ledger.held) == ["run-1"]
    world.clock.time += OLD_SECONDS + 1
    world.door.look()
    assert list(world.ledger.held) == ["run-2"]


def test_an_old_run_keeps_its_workers() -> None:
    """While its execution runs, and while nobody can say so."""
    world = World(1)
    world.door.start(bid(1), INPUT)
    world.clock.time += OLD_SECONDS + 1
    world.door.look()
    world.states.broken = {"describe_execution"}
    world.door.look()
    assert list(world.ledger.held) == ["run-1"]


def test_redrives_that_nobody_can_count() -> None:
    """An execution that is not described counts as not redriven: its failure is reported."""
    world = World(1)
    world.door.start(bid(1), INPUT)
    assert world.door.count_redrives("run-1") == 0
    world.states.broken = {"describe_execution"}
    assert world.door.count_redrives("run-1") == 0


def test_two_functions_that_admit_the_same_run() -> None:
    """It is started once: the other finds its entry gone, or its execution there."""
    world = World(1)
    world.door.start(bid(1), INPUT)
    world.door.start(bid(2), INPUT)
    entry = world.ledger.waiting["run-2"]
    world.end("run-1")
    world.door._admit(entry, entry._replace(share=1))
    assert list(world.running) == ["run-2"]
    world.end("run-2")
    assert world.store.objects == {}


def test_two_functions_that_start_the_same_run_in_the_same_second() -> None:
    """Their entries have the same name: the one that comes too late leaves it alone."""
    world = World(8)
    world.door.start(bid(1), INPUT)
    held = world.ledger.held["run-1"]
    assert world.door._hold(held, INPUT) is Start.KNOWN
    assert world.ledger.held == {"run-1": held}
    world.end("run-1")
    assert world.store.objects == {}


def test_a_function_that_is_killed_before_it_starts_a_run() -> None:
    """The workers are held already; the event comes again, or a reminder finds it."""
    world = World(1)
    write_entry(world.store, Entry(bid(1), 10_000, 1))
    assert world.door.start(bid(1), INPUT) is Start.STARTED
    world.door.start(bid(2), INPUT)
    world.end("run-1")
    del world.states.executions["run-2"]
    write_entry(world.store, Entry(bid(2), 10_000), INPUT)
    assert list(world.ledger.begun) == ["run-2"]
    world.door.look()
    assert list(world.running) == ["run-2"]
    assert len(world.reminders) == 1
    assert world.ledger.begun == {}


def test_a_plan_replaces_what_was_held_before_it() -> None:
    """A run holds as much as one may have until it is planned, and also where nothing is held."""
    world = World(100)
    world.door.start(bid(1, 100), {"planned": False})
    assert world.states.executions["run-1"].input == {"planned": False}
    assert world.door.plan(bid(1, 5)) == 5
    assert world.door.plan(bid(1, 5)) == 5
    assert {name: one.share for name, one in world.ledger.held.items()} == {"run-1": 5}
    assert world.door.plan(bid(2, 200)) == 95


def test_bids_of_plans(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan says how many workers, how many requests and how long; a tenant is a prefix."""
    account.deploy(**{Variable.TENANTS: '["a", "team/"]', Variable.WORKERS: "12"})
    for name, value in account.variables.items():
        monkeypatch.setenv(name, value)
    config = open_worker()
    assert (config.workers, config.tenant_of("team/x.zip"), config.tenant_of("b")) == (
        12,
        "team/",
        "",
    )
    before = unplanned_bid(RUN.id, RUN, config, 5.0)
    assert (before.tenant, before.workers, before.order) == ("a", 1_000, 5.0)
    plan = replace(PLAN, tasks=80, concurrency=10, seconds=10.0, kinds={"batch": 70_000})
    after = planned_bid(plan, config, 5.0)
    assert (after.workers, after.load, after.order) == (10, 2.0, 15.0)
    assert after.busy == pytest.approx(10 / 18.5)
    assert planned_bid(PLAN, config, 5.0).load == 0.0
