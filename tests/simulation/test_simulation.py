"""Schedules of the simulation: a fixed number of them, those that once failed, and exact replay."""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.__main__ import find_failure, shrink
from tests.simulation.mutants import MUTANTS, PACKAGE, Mutant, hunt
from tests.simulation.schedule import run_seed

SHORT = 120  # schedules of the short form: bounded work, not time
# Coverage does not measure what runs seeds that `test_runs_end_as_the_documents_say` runs, too:
# measuring doubles their time, and finds no other branch.
AGAIN = pytest.mark.no_cover
DIGEST = """
import hashlib
from tests.simulation.schedule import run_seed
for seed in range(20):
    print(hashlib.sha256(repr(run_seed(seed).trace).encode()).hexdigest())
"""


@pytest.mark.parametrize("first", range(0, SHORT, 10))
def test_runs_end_as_the_documents_say(first: int) -> None:
    """Whatever goes wrong at whichever call, nothing happens that the documents forbid."""
    for seed in range(first, first + 10):
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
    ended = [run_seed(seed) for seed in range(80)]
    kinds = {fault.split()[0] for one in ended for fault in one.injected}
    assert kinds >= {"throttle", "refuse", "lose", "delay", "crash", "crash-after", "overwrite"}
    assert kinds >= {"outage", "deny", "abort", "busy", "twice"}
    assert sum(bool(one.injected) for one in ended) > 50
    both = {line.rpartition(": ")[2] for one in ended for line in one.trace}
    assert {"Plan", "Few tasks", "Many tasks", "Settle"} <= both


@AGAIN
def test_a_failure_says_its_seed_and_shrinks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where settling drops no uploads, a schedule fails, and says how to see it again."""
    monkeypatch.setattr("s3unzip.settling.loop._drop_uploads", lambda *_: None)
    seed = next(seed for seed in range(300) if find_failure(seed))
    shortest = shrink(seed)
    assert shortest is not None
    assert f"seed {seed}: " in str(shortest)
    assert f"make simulate SEED={seed}" in str(shortest)
    assert "drops what was left before its end" in shortest.sentence


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_mutant_can_be_planted(mutant: Mutant, tmp_path: Path) -> None:
    """The text that a mutant replaces stands once in the source."""
    copy = tmp_path / mutant.file
    copy.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(PACKAGE / mutant.file, copy)
    mutant.apply(tmp_path)
    compile(copy.read_text(), mutant.file, "exec")


def test_a_mutant_is_caught() -> None:
    """A fault that is planted into a copy of the package fails a schedule there."""
    lost = next(mutant for mutant in MUTANTS if mutant.name == "lost-outcome")
    assert hunt(lost, seconds=100.0).startswith("seed ")
