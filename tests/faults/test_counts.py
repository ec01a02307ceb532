"""The requests in report.json are those that a proxy before the store saw, kind by kind."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import asdict

from s3unzip.local.extra import clear_extra
from s3unzip.local.runner import redrive, retry_failed, run_archive
from s3unzip.model import (
    AfterSuccess,
    Location,
    OnConflict,
    Options,
    Request,
    SourceAction,
    SourceState,
    Verdict,
)
from s3unzip.runs.records import RunRecords
from s3unzip.stores.clock import LocalClock
from tests.faults.archives import TUNING, make_archive
from tests.faults.rules import Act, Rule
from tests.faults.stores import DESTINATION
from tests.zips import Entry, build

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s3unzip.model import PlanSummary, Report
    from s3unzip.stores.ports import ListedObject
    from tests.faults.world import World

BELOW = f"/{DESTINATION}/archive/"
NOT_REQUESTS = {"retries", "throttled"}


def counted(report: Report) -> dict[str, int]:
    """Return the requests of a report by kind."""
    found = asdict(report.requests)
    return {kind: count for kind, count in found.items() if count and kind not in NOT_REQUESTS}


def seen(world: World) -> dict[str, int]:
    """Return the requests that came through the proxy since the last time."""
    return dict(Counter(record.kind for record in world.proxy.take_records()))


@pytest.mark.parametrize(
    ("small", "large", "kinds"),
    [
        pytest.param(120, False, {"batch"}, id="small"),
        pytest.param(20, True, {"batch", "stream", "copy", "segment"}, id="large"),
    ],
)
def test_counts_of_every_kind_of_task(
    world: World, small: int, kinds: set[str], *, large: bool
) -> None:
    """Plan, scans, link, tasks and report are all counted, in every process."""
    world.put_archive(make_archive(small=small, large=large))
    report = world.run()
    assert report.verdict is Verdict.COMPLETED
    assert counted(report) == seen(world)
    summary = RunRecords.open(world.maker()(LocalClock()).stores, report.run).read_summary()
    assert set(summary.kinds) == kinds


def test_counts_of_a_run_that_finds_all_unchanged(world: World) -> None:
    """Pages of LIST and HEADs are counted one by one."""
    world.put_archive(make_archive(small=1_100, large=False, size=60))
    tuning = TUNING.__class__(batch_members=5_000, max_workers=1)
    world.run(tuning=tuning)
    world.proxy.take_records()
    options = Options(on_conflict=OnConflict.SKIP_UNCHANGED)
    report = world.run(options=options, tuning=tuning)
    found = seen(world)
    assert report.unchanged == 1_100
    assert counted(report) == found
    assert found["list"] >= 2


@pytest.mark.parametrize(
    "rule",
    [
        Rule(Act.ANSWER, chance=0.1),
        Rule(Act.LOSE, chance=0.1),
        Rule(Act.RESET, chance=0.1),
        Rule(Act.TRUNCATE, ("get", "list", "put", "part", "create", "complete"), chance=0.1),
    ],
    ids=lambda rule: str(rule.act),
)
def test_counts_of_a_run_with_faults(world: World, rule: Rule) -> None:
    """Each attempt is counted, also those of records."""
    world.put_archive(make_archive(small=60))
    world.proxy.set_rules(rule)
    report = world.run()
    assert report.verdict is Verdict.COMPLETED
    found = seen(world)
    assert counted(report) == found
    assert report.requests.retries > 0


@pytest.mark.parametrize("fault", [None, Rule(Act.ANSWER, chance=0.2)], ids=["well", "faults"])
def test_counts_of_a_run_with_an_action_after_it(world: World, fault: Rule | None) -> None:
    """The report counts what is done to the archive after it, and its own second writing."""
    world.put_archive(make_archive(small=10, large=False))
    world.proxy.set_rules(*([fault] if fault else []))
    report = world.run(after_success=AfterSuccess(SourceAction.DELETE))
    assert report.after_success is not None
    assert report.after_success.state is SourceState.DONE
    assert counted(report) == seen(world)


def test_counts_of_a_redriven_run(world: World) -> None:
    """The report after a redrive holds the requests of both parts of the run."""
    world.put_archive(make_archive(small=120, large=False))
    denied = Rule(
        Act.ANSWER, ("put",), "/members/archive/", after=70, status=403, code="AccessDenied"
    )
    world.proxy.set_rules(denied)
    context = world.maker()(LocalClock())
    plans: list[PlanSummary] = []
    make_pool = partial(world._pool, world.maker(), context, 0, None)
    first = run_archive(world.request(), context, make_pool, plans.append)
    assert first.verdict is Verdict.FAILED
    world.proxy.set_rules()
    report = redrive(plans[0], context, make_pool)
    assert report.verdict is Verdict.COMPLETED
    assert counted(report) == seen(world)


def test_counts_of_a_retried_run(world: World) -> None:
    """What a retry reads and does is added."""
    world.put_archive(make_archive(small=30, large=False))
    world.proxy.set_rules(
        Rule(Act.ANSWER, ("put",), "/members/archive/", times=3, status=400, code="X")
    )
    context = world.maker()(LocalClock())
    plans: list[PlanSummary] = []
    make_pool = partial(world._pool, world.maker(), context, 0, None)
    first = run_archive(world.request(), context, make_pool, plans.append)
    assert first.failed == 3
    report = retry_failed(plans[0], context, make_pool)
    assert report.verdict is Verdict.COMPLETED
    assert counted(report) == seen(world)


@pytest.mark.parametrize("agrees", [True, False])
def test_counts_of_deleting_what_is_extra(world: World, agrees: bool) -> None:  # noqa: FBT001
    """Each LIST, each DeleteObjects and the second report are counted; members stay."""
    world.put_archive(make_archive(small=20, large=False))
    for number in range(1_100):
        world.client.put_object(Bucket=DESTINATION, Key=f"archive/extra/{number}", Body=b"")
    world.proxy.take_records()
    report = world.run(processes=0)
    found: list[ListedObject] = []

    def confirm(extra: Sequence[ListedObject]) -> bool:
        found.extend(extra)
        return agrees

    report = clear_extra(report, world.maker()(LocalClock()), confirm)
    requests = seen(world)
    assert counted(report) == requests
    assert requests["list"] >= 2
    assert requests.get("delete", 0) >= (2 if agrees else 0)
    assert len(found) == 1_100
    left = world.client.list_objects_v2(Bucket=DESTINATION, Prefix="archive/extra/")
    assert left["KeyCount"] == (0 if agrees else 1_000)
    assert report.extracted == 20


def test_counts_of_a_refused_archive(world: World) -> None:
    """A rejected archive has no task, but a plan and a report."""
    world.put_archive(build(Entry("a", b"1")) + b"trailing")
    report = world.run()
    assert report.verdict is Verdict.REJECTED
    assert counted(report) == seen(world)


def test_counts_of_keys_that_obstore_changes(world: World) -> None:
    """The requests that replace obstore's are counted by their kind."""
    world.client.put_object(
        Bucket="ingest", Key="a//b.zip", Body=make_archive(small=5, large=False)
    )
    request = Request(Location("s3", "ingest", "a//b.zip"), Location("s3", DESTINATION, ""))
    context = world.maker()(LocalClock())
    make_pool = partial(world._pool, world.maker(), context, 0, None)
    report = run_archive(request, context, make_pool, lambda _: None)
    assert report.verdict is Verdict.COMPLETED
    assert counted(report) == seen(world)
