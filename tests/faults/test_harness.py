"""The harness in its short form: what it measures must hold, however few the cases."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from s3unzip.model import Verdict
from tests.faults import bombs, experiments, killing
from tests.faults.archives import make_archive
from tests.faults.proxy import Act, Rule
from tests.faults.world import expected_listing
from tests.zips import BZIP2, DEFLATE, ZSTD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.faults.figures import Figure
    from tests.faults.world import World

REFUSED: dict[str, Callable[[], bytes]] = {  # making them takes seconds
    "overlap": bombs.overlap,
    "quoted overlap": bombs.quoted_overlap,
    "high ratio": partial(bombs.honest, DEFLATE),
    "high ratio, bzip2": partial(bombs.honest, BZIP2, 30),
    "lying, small": partial(bombs.lying, DEFLATE, 1_000),
    "lying, large": partial(bombs.lying, ZSTD, 100 * 1024),
}


def values(figures: Iterator[Figure]) -> dict[str, float]:
    """Return figures by the last part of their names."""
    return {figure.name.rpartition(".")[2]: figure.value for figure in figures}


def test_killed_workers_leave_nothing_undone(world: World) -> None:
    """After kills and at most one resumed run all members exist, and no upload is left."""
    found = values(killing.measure_kills(world, 6))
    assert found["equal_sequences"] == found["sequences"]
    assert (found["uploads_left"], found["files_left"], found["survivors"]) == (0, 0, 0)


@pytest.mark.parametrize(
    "rule",
    [
        Rule(Act.ANSWER, chance=0.2, status=503, code="SlowDown"),
        Rule(Act.TRUNCATE, chance=0.2),
        Rule(Act.LOSE, chance=0.1),
        Rule(Act.FLIP, kinds=("put", "part"), within="/members/", chance=0.1),
    ],
    ids=["refused", "cut-short", "answer-lost", "flipped"],
)
def test_no_member_is_lost(world: World, rule: Rule) -> None:
    """With any share of failing requests, all members arrive unchanged."""
    archive = make_archive(small=20)
    want = expected_listing(archive)
    found = values(experiments.measure_rule(world, archive, want, rule, "x", None))
    assert (found["lost_members"], found["whole"], found["uploads_left"]) == (0, 1, 0)
    assert found["faults"] > 0


@pytest.mark.parametrize("act", [Act.LOSE, Act.ERROR_BODY])
def test_ambiguous_complete(world: World, act: Act) -> None:
    """An upload whose Complete was answered by nothing, or by 200 with an error, is settled."""
    archive = make_archive(small=5)
    rule = Rule(act, kinds=("complete",), times=3, code="InternalError")
    want = expected_listing(archive)
    found = values(experiments.measure_rule(world, archive, want, rule, "x", None))
    assert (found["whole"], found["uploads_left"], found["faults"]) == (1, 0, 3)


def test_never_a_mix(world: World) -> None:
    """An archive that is overwritten is extracted from one version only, or not at all."""
    found = values(experiments.measure_overwrites(world, 2))
    assert (found["mixed"], found["wrong_verdicts"], found["uploads_left"]) == (0, 0, 0)


@pytest.mark.parametrize(
    "rule",
    [
        experiments.DENIED,
        experiments.after(experiments.DENIED, 200),
        experiments.READ,
        experiments.after(experiments.KMS, 200),
    ],
    ids=["at the start", "in mid-run", "on the source", "by KMS"],
)
def test_a_missing_right_is_asked_for_a_few_times(world: World, rule: Rule) -> None:
    """The run stops at the first 403 of a kind, says so, and `resume` completes it."""
    archive = make_archive(small=1_000, large=False, size=200)
    found = values(experiments.measure_denial(world, archive, rule, "x"))
    assert found["told"] == 1
    assert found["requests_after"] < 100
    assert found.get("whole_after_redrive", 1) == 1


def test_a_second_run_writes_nothing(world: World) -> None:
    """LIST and HEAD find existing objects, under both careful rules."""
    by_name = {figure.name: figure.value for figure in experiments.measure_reruns(world, 500)}
    for rule in ("skip-unchanged", "never"):
        assert by_name[f"rerun.{rule}.put"] == 0
        assert by_name[f"rerun.{rule}.unchanged"] == 500
        assert by_name[f"rerun.{rule}.whole"] == 1


def test_tasks_done_twice_at_once(world: World) -> None:
    """Two workers with the same task do not get into each other's way."""
    found = values(experiments.measure_twins(world, 10))
    assert found["equal_runs"] == found["runs"]
    assert found["uploads_left"] == 0


@pytest.mark.parametrize("archive", REFUSED)
def test_a_bomb_is_refused_within_budget(world: World, archive: str) -> None:
    """No byte of it stays, and finding out costs less than a tenth of a cent."""
    found = values(bombs.measure_bomb(world, "x", REFUSED[archive]()))
    assert found["refused_within_budget"] == 1


def test_two_runs_to_the_same_keys(world: World) -> None:
    """A run that ends does not drop the uploads of another one to the same keys."""
    old, new = make_archive(small=10, seed=1), make_archive(small=10, seed=2)
    world.put_archive(old)
    reports = []

    def overtake() -> None:
        world.put_archive(new)
        reports.append(world.run(processes=0))

    world.proxy.set_rules(Rule(Act.HOLD, kinds=("part",), times=1), on_hold=overtake)
    late = world.run()
    assert reports[0].verdict is Verdict.COMPLETED
    assert late.verdict in {Verdict.SOURCE_CHANGED, Verdict.COMPLETED}
    both = (expected_listing(old), expected_listing(new))
    assert all(entry in (both[0][key], both[1][key]) for key, entry in world.listing().items())
    assert world.uploads() == 0
