"""Shares of workers: fair between tenants and runs, and never less than a run can use."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from s3unzip.runs.shares import (
    MAX_LOAD,
    MIN_WORKERS,
    Bid,
    admit,
    busy_part,
    fill,
    min_workers,
    share_workers,
)

BIDS = st.lists(
    st.builds(
        Bid,
        run=st.uuids().map(str),
        tenant=st.sampled_from(["", "a/", "b/"]),
        workers=st.integers(1, 1_000),
        load=st.floats(0, 4),
        busy=st.floats(0.01, 1),
        order=st.integers(0, 100).map(float),
    ),
    max_size=30,
    unique_by=lambda bid: bid.run,
)


def bids(count: int, **wanted: float) -> list[Bid]:
    """Return equal bids of one tenant, in order."""
    first = Bid("r", workers=int(wanted.get("workers", 8)), load=wanted.get("load", 0.0))
    return [replace(first, run=f"r{n:04d}", order=float(n)) for n in range(count)]


def test_a_run_alone_has_what_it_wants() -> None:
    """It gets all the workers it asks for, as far as there are so many."""
    (giant,) = bids(1, workers=5_000)
    assert share_workers(800, [giant]) == {giant.run: 800}
    assert share_workers(800, [replace(giant, workers=7)]) == {giant.run: 7}


def test_a_middling_run_beside_giants() -> None:
    """It gets all it wants, and the giants share the rest."""
    giants = bids(2, workers=1_000)
    small = Bid("small", workers=100)
    shares = share_workers(800, [*giants, small])
    assert shares == {"r0000": 350, "r0001": 350, "small": 100}


def test_a_tenant_with_many_runs_has_one_part() -> None:
    """Half of the workers go to the tenant with one run."""
    loud = [replace(one, tenant="loud/") for one in bids(50, workers=100)]
    quiet = Bid("quiet", "quiet/", workers=1_000)
    shares = share_workers(800, [*loud, quiet])
    assert shares["quiet"] == 400
    assert {shares[one.run] for one in loud} == {8}


def test_runs_that_put_small_members_leave_each_other_the_rate() -> None:
    """Together they ask for no more than a multiple of the rate, and each has a worker."""
    shares = share_workers(800, bids(20, workers=8, load=2.0))
    assert set(shares.values()) == {2}
    assert sum(share * 2.0 / 8 for share in shares.values()) <= MAX_LOAD


def test_as_many_runs_are_admitted_as_have_a_useful_share() -> None:
    """The rest waits, in order, and nobody who came later passes."""
    waiting = bids(500)
    admitted = admit(800, [], waiting)
    assert [one.run for one in admitted] == [one.run for one in waiting[: 800 // MIN_WORKERS]]
    assert admit(800, admitted, waiting[100:]) == []
    assert admit(800, admitted[1:], waiting[100:]) == [waiting[100]]


def test_few_workers_still_do_several_runs() -> None:
    """An account of ten does four runs at once; one worker does one run."""
    assert min_workers(10, Bid("r", workers=8)) == 2
    assert len(admit(10, [], bids(9))) == 5
    assert len(admit(1, [], bids(9))) == 1


def test_short_runs_count_for_the_time_that_they_need_workers() -> None:
    """A run that mostly starts and ends leaves its workers to others."""
    assert busy_part(8, 8.0, 8) == pytest.approx(0.4)
    assert busy_part(100, 850.0, 100) == pytest.approx(0.5)
    assert len(admit(80, [], [replace(one, busy=0.5) for one in bids(99)])) == 20


def test_fewer_workers_are_busy_for_longer() -> None:
    """A run of one second on 8 workers needs a single one for 8 seconds of its 9.5."""
    short = Bid("r", workers=8, busy=busy_part(8, 8.0, 8))
    assert short.busy_with(8) == pytest.approx(short.busy)
    assert short.busy_with(1) == pytest.approx(8 / 9.5)
    assert Bid("r", workers=8).busy_with(1) == 1.0
    assert 0 < replace(short, busy=1e-9).busy_with(1_000) < 1e-9


def test_a_run_is_admitted_where_half_of_its_workers_have_room() -> None:
    """Workers that others leave for a moment would be idle otherwise."""
    runs = [replace(one, busy=busy_part(8, 8.0, 8)) for one in bids(99)]
    # On 4 workers each gets one, for 84 % of its time: 4 such runs leave room for most of a fifth.
    assert len(admit(4, [], runs)) == 5
    assert len(admit(4, [], bids(99))) == 4


def test_a_load_of_nearly_nothing_limits_nobody() -> None:
    """The smallest numbers there are make no worker too many."""
    tiny = replace(bids(1, workers=8)[0], run="tiny", load=2.3e-308)
    shares = share_workers(100, [tiny, *bids(20, workers=8, load=4.0)])
    assert shares["tiny"] >= 4


def test_the_tenant_that_uses_least_is_served_first() -> None:
    """A tenant's first run passes another tenant's many."""
    loud = [replace(one, tenant="loud/") for one in bids(200)]
    quiet = Bid("quiet", "quiet/", workers=8, order=1_000.0)
    assert admit(80, loud[:9], [*loud[9:], quiet]) == [quiet]


def test_a_load_that_is_nearly_none_limits_nothing() -> None:
    """A run whose load is the smallest number there is has what it wants beside a loud one."""
    small = Bid("small", workers=3, load=5e-324)
    loud = Bid("loud", workers=4, load=4 * MAX_LOAD)
    assert share_workers(800, [small, loud])["small"] == 3


@given(st.integers(1, 1_000), BIDS)
def test_shares_hold_for_all_runs(workers: int, wanted: list[Bid]) -> None:
    """Each admitted run has a worker and at most what it wants; the first is always admitted."""
    admitted = admit(workers, [], wanted)
    assert bool(admitted) == bool(wanted)
    shares = share_workers(workers, admitted)
    assert set(shares) == {bid.run for bid in admitted}
    assert all(1 <= shares[bid.run] <= bid.workers for bid in admitted)


@given(st.integers(0, 1_000), st.dictionaries(st.text(), st.integers(0, 500)))
def test_filling_wastes_nothing(total: int, wanted: dict[str, int]) -> None:
    """All is given that is wanted and there, and who has less than another has what it wants."""
    given = fill(total, wanted)
    assert sum(given.values()) == min(total, sum(wanted.values()))
    top = max(given.values(), default=0)
    assert all(given[one] == wanted[one] or given[one] >= top - 1 for one in wanted)
