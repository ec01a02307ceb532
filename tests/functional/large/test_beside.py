"""Small members beside a huge one: they do not wait until it is scanned and linked."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec.structs import replace

from s3unzip.errors import ServiceFaultError
from s3unzip.local.runner import run_archive
from s3unzip.local.worker import LINK, Failed
from tests import zips
from tests.functional.large.encoders import log_lines
from tests.functional.large.world import TUNING, World

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from s3unzip.local.pool import PoolResult
    from s3unzip.local.worker import Done, Follow, Job
    from s3unzip.model import Report, Run
    from tests.serial_pool import SerialPool

HUGE = log_lines(700_000)
SMALL = {f"small-{n}": b"%d" % n for n in range(4)}
SEGMENTS = 6


@dataclass(slots=True)
class Pool:
    """Does jobs in this process, in the order of a pool of `processes`."""

    pool: SerialPool
    world: World
    processes: int = 1
    begun: list[str] = field(default_factory=list)  # ids of the jobs of the first pass
    ended: list[tuple[str, int]] = field(default_factory=list)  # and how many objects were there
    fails_to_link: bool = False

    def work(self, jobs: Iterable[Job], follow: Follow) -> PoolResult:
        """Do `jobs` and what follows them."""
        listed = list(jobs)
        self.begun += [job.id for job in listed]

        def note(ended: Done | Failed) -> Sequence[Job]:
            self.ended.append((ended.job, len(self.world.out.objects)))
            following = follow(ended)
            if self.fails_to_link and [job.id for job in following] == [LINK]:
                self.fails_to_link = False
                return follow(Failed(LINK, ServiceFaultError("S3 does not answer")))
            return following

        return self.pool.work(listed, note)

    def close(self) -> None:
        """Do nothing: there is no process."""


def extract(processes: int = 1, *, fails_to_link: bool = False) -> tuple[World, Pool, Report]:
    """Extract one huge member and some small ones."""
    huge = zips.Entry("huge", HUGE, zips.DEFLATE)
    world = World(replace(TUNING, segment_bytes=-(-len(huge.stored_data) // SEGMENTS)))
    pools: list[Pool] = []

    def make_pool(run: Run) -> Pool:
        pool = Pool(world.pool(run), world, processes, fails_to_link=fails_to_link)
        pools.append(pool)
        return pool

    small = [zips.Entry(name, content) for name, content in SMALL.items()]
    request = world.request(zips.build(huge, *small))
    report = run_archive(request, world.context, make_pool, lambda _: None)
    assert world.summary(report).scans == SEGMENTS
    return world, pools[0], report


def test_one_worker_extracts_the_small_members_first() -> None:
    """They are there before the first scan ends; scans, link and slices follow."""
    world, pool, report = extract()
    world.assert_clean(report, huge=HUGE, **SMALL)
    jobs = [job for job, _ in pool.ended]
    assert jobs[0] == "batch-0000000"
    assert all(job.startswith("scan-") for job in jobs[1 : SEGMENTS + 1])
    assert jobs[SEGMENTS + 1] == LINK
    assert all(job.startswith("segment-") for job in jobs[SEGMENTS + 2 :])
    assert len(jobs) == 2 + 2 * SEGMENTS
    assert pool.ended[1][1] == len(SMALL)


def test_several_workers_begin_with_small_members_and_scans() -> None:
    """One worker has the small members while the others scan."""
    world, pool, report = extract(processes=3)
    world.assert_clean(report, huge=HUGE, **SMALL)
    kinds = [job.partition("-")[0] for job in pool.begun]
    assert kinds == ["batch", *["scan"] * SEGMENTS]


def test_a_link_that_fails_is_tried_again() -> None:
    """The slices wait for the second pass, which links before it extracts them."""
    world, pool, report = extract(fails_to_link=True)
    world.assert_clean(report, huge=HUGE, **SMALL)
    assert [job for job, _ in pool.ended].count(LINK) == 1
    assert pool.begun[-1] == LINK
