"""Schedules of the simulation: a fixed number of them, those that once failed, and exact replay."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.simulation.seeds import run_seed, shrink

from tests.simulation.mutants import MUTANTS, PACKAGE, Mutant, hunt
from tests.simulation.schedule import FailedScheduleError

if TYPE_CHECKING:
    from pathlib import Path

# What these found is in docs/contributing/simulation.md, "What it found".
FOUND = (
    59, 148, 156, 172, 301, 307, 398, 418, 544, 645, 797, 871, 889, 994, 1144, 1217, 1294, 1365,
    1388, 1485, 2284, 2632, 2684, 3004, 4667,
    1795379632911, 1795381275958, 1795381288294, 1795381289679,
    1795385090812, 1795385094713, 1795385109873,
)  # fmt: skip
SHORT = 120  # schedules of the short form: bounded work, not time
# Coverage does not measure what runs seeds that `test_runs_end_as_the_documents_say` runs, too:
# measuring doubles their time, and finds no other branch.
AGAIN = pytest.mark.no_cover
DIGEST = """
import hashlib
from tests.simulation.seeds import run_seed
for seed in range(20):
    print(hashlib.sha256(repr(run_seed(seed).trace).encode()).hexdigest())
"""


@pytest.mark.parametrize("first", range(0, SHORT, 10))
def test_runs_end_as_the_documents_say(first: int) -> None:
    """Whatever goes wrong at whichever call, the model finds nothing that the documents forbid."""
    for seed in range(first, first + 10):
        run_seed(seed)


@pytest.mark.parametrize("seed", FOUND)
def test_found_seeds_stay_mended(seed: int) -> None:
    """A schedule that once showed a fault does not show it any more."""
    run_seed(seed)


@AGAIN
def test_a_seed_replays_exactly() -> None:
    """The same seed is the same schedule in another process, whatever its order of sets."""
    here = [hashlib.sha256(repr(run_seed(seed).trace).encode()).hexdigest() for seed in range(20)]
    there = subprocess.run(
        [sys.executable, "-c", DIGEST],
        env={**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert there.stdout.split() == here


@AGAIN
def test_most_schedules_have_faults_of_every_kind() -> None:
    """Each kind of fault is injected somewhere in a few schedules, and most schedules have some."""
    ended = [run_seed(seed) for seed in range(60)]
    kinds = {fault.split()[0] for one in ended for fault in one.injected}
    assert kinds >= {"throttle", "refuse", "lose", "delay", "crash", "crash-after", "overwrite"}
    assert sum(bool(one.injected) for one in ended) > 40


def test_slices_wait_beside_scans() -> None:
    """In some schedules the Map over the slices starts with that over the scans."""
    traces = (run_seed(seed).trace for seed in range(13, 4_000, 20))
    assert any("Slices when linked" in line for trace in traces for line in trace)


@AGAIN
def test_a_failure_says_its_seed_and_shrinks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where settling drops no uploads, a schedule fails, and says how to see it again."""
    monkeypatch.setattr("s3unzip.settling.settle.abort_leftovers", lambda *_: 0)
    seed = next(seed for seed in range(300) if _fails(seed))
    shortest = shrink(seed)
    assert shortest is not None
    assert f"seed {seed}: " in str(shortest)
    assert f"make simulate SEED={seed}" in str(shortest)
    assert "settling a run aborts every upload on record" in shortest.sentence


def _fails(seed: int) -> bool:
    try:
        run_seed(seed)
    except FailedScheduleError:
        return True
    return False


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_mutant_can_be_planted(mutant: Mutant, tmp_path: Path) -> None:
    """The text that a mutant replaces stands once in the source."""
    copy = tmp_path / mutant.file
    copy.parent.mkdir(parents=True)
    shutil.copy(PACKAGE / mutant.file, copy)
    mutant.apply(tmp_path)
    compile(copy.read_text(), mutant.file, "exec")


def test_a_mutant_is_caught() -> None:
    """A fault that is planted into a copy of the package fails a schedule there."""
    lost = next(mutant for mutant in MUTANTS if mutant.name == "lost-outcome")
    caught = hunt(lost, seconds=100.0)
    assert caught is not None
    assert caught.sentence
