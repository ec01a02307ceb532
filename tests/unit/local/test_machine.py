"""Runs on one machine: what ends them, and how they go on."""

from s3unzip.errors import ServiceFaultError
from s3unzip.local.machine import SERVICE_FAULT, Machine
from s3unzip.model import Verdict
from s3unzip.stores.ports import Buffer, ObjectFacts
from tests.support.memory import MemoryBucket
from tests.support.runs import Told, World
from tests.support.zips import DEFLATE, Entry, build

MEMBERS = 40
ARCHIVE = build(*(Entry(f"f{n:02}", b"%d" % n * 100, DEFLATE) for n in range(MEMBERS)))


class Dying(MemoryBucket):
    """A destination that does not answer after so many PUTs, until it is mended."""

    def __init__(self, puts: int) -> None:
        super().__init__()
        self.left = puts
        self.vain = 0

    def put(self, key: str, body: Buffer, facts: ObjectFacts, *, if_absent: bool) -> str:
        if self.left <= 0:
            self.vain += 1
            raise ServiceFaultError("http://s3: connection refused")
        self.left -= 1
        return super().put(key, body, facts, if_absent=if_absent)


def _small_tasks() -> World:
    world = World()
    world.tune(batch_members=5, batch_min_seconds=1e-9)
    world.progress = Told()
    return world


def test_a_dead_store_ends_the_run_once() -> None:
    """Not each task and each round asks it for its whole budget; `resume` does the rest."""
    world = _small_tasks()
    dead = world.buckets.buckets["out"] = Dying(puts=12)
    report = Machine(world.context).run(world.request(ARCHIVE))
    assert (report.verdict, report.reason) == (Verdict.FAILED, SERVICE_FAULT)
    assert "connection refused" in str(report.message)
    assert len(dead.objects) == 12
    assert world.records(report.run).list_rounds() == [0]  # there is no other round
    dead.left = MEMBERS
    world.progress = shown = Told()
    assert Machine(world.context).resume(report.run).verdict is Verdict.COMPLETED
    assert len(dead.objects) == shown.counts["extracted"] == MEMBERS


def test_a_second_run_of_an_archive_begins_anew() -> None:
    """What the first run left is forgotten, its objects are written again, in the same phases."""
    world = _small_tasks()
    first = Machine(world.context).run(world.request(ARCHIVE))
    world.out.objects.clear()
    again = Machine(world.context).run(world.request(ARCHIVE))
    assert (first.verdict, first.run) == (Verdict.COMPLETED, again.run)
    assert (again.verdict, again.extracted) == (Verdict.COMPLETED, MEMBERS)
    assert len(world.out.objects) == MEMBERS
    assert isinstance(world.progress, Told)
    assert world.progress.phases == ["plan", "extract", "report"] * 2
