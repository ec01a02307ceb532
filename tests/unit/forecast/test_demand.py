"""What a task asks: requests as the pipeline makes them, seconds as a replay of each PUT gives."""

from __future__ import annotations

import heapq
import random
from statistics import mean

import pytest

from s3unzip.errors import UsageError
from s3unzip.forecast import Latency, Platform, local
from s3unzip.forecast.demand import Demand, Job, put_seconds, requests_of
from s3unzip.model import Requests, TaskKind
from s3unzip.settings import MIB, Tuning
from tests.unit.forecast.plans import MB, batch, large, steady

TUNING = Tuning()


def replay(members: int, lanes: int, latency: Latency, rng: random.Random) -> float:
    """Return what `members` PUTs take one by one, with a pace that begins at four."""
    sigma = latency.sigma
    now, limit, ended = 0.0, 4, 0.0
    flying: list[float] = []
    for _ in range(members):
        while len(flying) >= limit:
            now = heapq.heappop(flying)
            limit = min(lanes, limit + 1)
        end = now + latency.p50 * rng.lognormvariate(0.0, sigma)
        ended = max(ended, end)
        heapq.heappush(flying, end)
    return ended


@pytest.mark.parametrize("members", [1, 3, 10, 32, 100, 1_000, 4_000])
@pytest.mark.parametrize("latency", [Latency(0.030, 0.200), Latency(0.005, 0.010)])
def test_closed_form_agrees_with_a_replay(members: int, latency: Latency) -> None:
    """The closed form for a task's PUTs is within 12 % of playing every single one."""
    platform = local(workers=1, put=latency)
    job = Job("batch", "batch", floor=0.0, lanes=32, members=members)
    rng = random.Random(7)
    rounds = 200 if members < 1_000 else 30
    exact = mean(replay(members, 32, latency, rng) for _ in range(rounds))
    formula = mean(put_seconds(job, platform, rng) for _ in range(rounds))
    assert formula == pytest.approx(exact, rel=0.12)


def test_requests_of_a_batch() -> None:
    """Three small GETs and one of the archive; a PUT a member and one for the outcomes."""
    job = Demand(steady(), TUNING, 4).job_of(batch(0, members=100))
    assert requests_of([job]) == Requests(get=4, put=101)
    assert job.writes == 101


def test_requests_of_a_stream() -> None:
    """100 MiB: three GETs, record, header, 13 pieces of 8 MiB; 7 parts of 16 MiB."""
    job = Demand(steady(), TUNING, 4).job_of(large(TaskKind.STREAM, 0, 100 * MIB))
    assert requests_of([job]) == Requests(get=5 + 13, put=2, create=1, part=7, complete=1)


def test_requests_of_a_copy() -> None:
    """A stored member of 1 GiB is two copied parts; no worker reads it."""
    job = Demand(steady(), TUNING, 4).job_of(large(TaskKind.COPY, 0, 1024 * MIB))
    assert requests_of([job]) == Requests(get=5, put=2, create=1, copy=2, complete=1)


def test_requests_of_the_slices_of_a_split_member() -> None:
    """One upload is created and completed for all slices of a member, each uploads its parts."""
    slices = [large(TaskKind.SEGMENT, 0, 64 * MIB, part, 3) for part in range(3)]
    jobs = [Demand(steady(), TUNING, 4).job_of(task) for task in slices]
    assert requests_of(jobs) == Requests(get=3 * 13, put=3, create=1, part=12, complete=1)
    assert all(job.shared for job in jobs)


def test_large_members_get_larger_parts() -> None:
    """At 10,000 parts the parts grow and their number stops."""
    job = Demand(steady(), TUNING, 4).job_of(large(TaskKind.STREAM, 0, 1024 * 1024 * MIB))
    assert 9_990 <= job.parts <= 10_000


def test_bandwidth_and_inflate_make_the_floor() -> None:
    """100 MB out at 50 MB/s take 2 s; with inflate at 20 MB/s 5 s."""
    task = batch(0, members=10, size=100 * MB, read=MB)
    slow = steady(bandwidth_out=50.0 * MB)
    assert Demand(slow, TUNING, 1).job_of(task).floor == pytest.approx(2.0)
    slower = steady(bandwidth_out=50.0 * MB, inflate_rate=20.0 * MB)
    assert Demand(slower, TUNING, 1).job_of(task).floor == pytest.approx(5.0, rel=0.01)


def test_workers_share_a_machine() -> None:
    """Four workers on 100 MB/s have 25 each, one has all of it."""
    machine = local(workers=4, put=Latency(0.01, 0.02), bandwidth=100.0 * MB)
    assert machine.worker_bandwidth(4) == (25.0 * MB, 25.0 * MB)
    assert machine.worker_bandwidth(1) == (100.0 * MB, 100.0 * MB)


@pytest.mark.parametrize(("p50", "p99"), [(0.0, 1.0), (-1.0, 1.0), (2.0, 1.0)])
def test_impossible_latencies_are_refused(p50: float, p99: float) -> None:
    """A median above the 99th percentile, or nothing at all, is a usage error."""
    with pytest.raises(UsageError, match="latency"):
        Latency(p50, p99)


def test_latency_has_the_quantiles_it_was_given() -> None:
    """Half of all draws are below p50, 99 % below p99, and the mean is between them."""
    latency = Latency(0.030, 0.200)
    assert latency.quantile(0.5) == pytest.approx(0.030)
    assert latency.quantile(0.99) == pytest.approx(0.200)
    assert 0.030 < latency.mean < 0.200


def test_no_workers_are_refused() -> None:
    """A platform without workers is a usage error."""
    with pytest.raises(UsageError, match="workers"):
        local(workers=0, put=Latency(0.01, 0.02))


def test_platform_is_a_value() -> None:
    """Two platforms made alike are equal."""
    assert isinstance(steady(), Platform)
    assert steady() == steady()
