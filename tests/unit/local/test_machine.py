"""Runs on one machine: what ends them, how they go on, and what is extra at a destination."""

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import pytest
from msgspec.structs import replace

from s3unzip.errors import ServiceFaultError, UsageError
from s3unzip.local.destination_objects import check_extra, clear_extra
from s3unzip.local.machine import SERVICE_FAULT, Machine
from s3unzip.model import Location, Options, Request, Verdict
from s3unzip.stores.ports import Buffer, ObjectFacts, StoredObject
from tests.support.memory import OUT, MemoryBucket, MemoryStores, Told, World
from tests.support.zips import DEFLATE, Entry, build

MEMBERS = 40
ARCHIVE = build(*(Entry(f"f{n:02}", b"%d" % n * 100, DEFLATE) for n in range(MEMBERS)))


class Dying(MemoryBucket):
    """A destination that does not answer after so many PUTs, until it is mended."""

    def __init__(self, puts: int) -> None:
        super().__init__()
        self.left = puts

    def put(self, key: str, body: Buffer, facts: ObjectFacts, *, if_absent: bool) -> str:
        if self.left <= 0:
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
    first = world.run_here(world.request(ARCHIVE))
    world.out.objects.clear()
    again = world.run_here(world.request(ARCHIVE))
    assert (first.verdict, first.run) == (Verdict.COMPLETED, again.run)
    assert (again.verdict, again.extracted) == (Verdict.COMPLETED, MEMBERS)
    assert len(world.out.objects) == MEMBERS
    assert isinstance(world.progress, Told)
    assert world.progress.phases == ["plan", "extract", "report"] * 2


TWO_MEMBERS = build(Entry("a", b"1"), Entry("d/b", b"2"))


@pytest.mark.parametrize(
    ("destination", "options", "said"),
    [
        # What is not selected would be deleted, and so would the members of archives inside.
        (OUT, Options(include=("*.txt",)), "leave out --include, because"),
        (OUT, Options(exclude=("*.txt",)), "leave out --exclude, because"),
        (OUT, Options(names=("a",)), "leave out --member, because"),
        (OUT, Options(limit=1), "leave out --limit, because"),
        (OUT, Options(nested_depth=1), "leave out --nested"),
        # Neither everything nor a beginning of names.
        (OUT, Options(key_template="{member}"), "in the whole bucket s3://out/"),
        (
            Location("file", "", "/srv/"),
            Options(key_template="{member}"),
            "in the whole folder /srv/",
        ),
        (
            Location("s3", "out", "site/"),
            Options(key_template="v1-{member}"),
            "the keys begin with 'site/v1-'",
        ),
        (OUT, Options(key_template="{archive_stem}/{member}"), ""),
        (Location("s3", "out", "site/"), Options(key_template="{member}"), ""),
        (Location("s3", "other", "x/"), Options(key_template="{member}"), ""),
        (Location("file", "", "/srv/"), Options(key_template="site/{member}"), ""),
    ],
)
def test_the_whole_archive_clears_a_prefix_of_its_own(
    destination: Location, options: Options, said: str, tmp_path: Path
) -> None:
    """No selection, and neither everything nor a beginning of names; no plan has no say."""
    (tmp_path / "runs/2026-11-23/101112-archive-01234567").mkdir(parents=True)
    request = Request(Location("s3", "in", "x/archive.zip"), destination, options)
    with pytest.raises(UsageError, match=said) if said else nullcontext():
        check_extra(request, Location("file", "", f"{tmp_path}/"), MemoryStores())


def _fail(found: Sequence[StoredObject]) -> bool:
    raise AssertionError(found)


def test_nothing_is_asked_where_nothing_is_extra(world: World) -> None:
    """The caller hears only of what is there."""
    report = world.run(TWO_MEMBERS)
    world.out.put("elsewhere/x", b"", ObjectFacts("text/plain", {}), if_absent=False)
    cleared = clear_extra(report, world.context, _fail)
    assert cleared.requests.list > report.requests.list  # the second report counts the LIST
    assert (cleared.requests.delete, cleared.verdict) == (
        report.requests.delete,
        Verdict.COMPLETED,
    )
    assert world.contents("archive/").keys() == {"a", "d/b", "elsewhere/x"}


def test_records_that_lack_a_member_delete_nothing(world: World) -> None:
    """Lost outcomes must not make a member extra."""
    report = world.run(TWO_MEMBERS)
    wrong = replace(report, extracted=report.extracted + 1)
    with pytest.raises(ServiceFaultError, match="do not have all members"):
        clear_extra(wrong, world.context, _fail)
    assert len(world.out.objects) == 2
