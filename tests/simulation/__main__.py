"""`make simulate`: schedules for some seconds on each processor, or the one of a seed.

Prints what it found and the figure ``sim.schedules_per_hour``; the exit code is 1 where a schedule
failed.
"""

import argparse
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from itertools import count

from tests.simulation.schedule import FailedScheduleError, run_seed


def find_failure(seed: int, skipped: frozenset[int] = frozenset()) -> FailedScheduleError | None:
    """Return how the schedule of `seed` fails, None if it does not."""
    try:
        run_seed(seed, skipped)
    except FailedScheduleError as error:
        return error
    return None


def shrink(seed: int) -> FailedScheduleError | None:
    """Leave out the faults that a failing schedule does not need; None if it does not fail.

    What is left fails for the same sentence of the documents, and no fault of it can be left out
    alone.
    """
    found, skipped = find_failure(seed), frozenset[int]()
    for number in range(found.faults if found is not None else 0, 0, -1):
        fewer = find_failure(seed, skipped | {number})
        if found and fewer and fewer.sentence == found.sentence:
            found, skipped = fewer, skipped | {number}
    return found


def search(first: int, step: int, seconds: float, *, one: bool = False) -> tuple[int, list[int]]:
    """Run the schedules first, first + step, ...; return how many, and the seeds that failed."""
    until = time.monotonic() + seconds
    failures: list[int] = []
    for done, seed in enumerate(count(first, step)):
        if time.monotonic() > until or (one and failures):
            return done, failures
        if find_failure(seed) is not None:
            failures.append(seed)
    raise AssertionError("count has no end")


def main() -> int:
    """Run what the command line asks for; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long to go on")
    parser.add_argument("--seed", type=int, help="replay this one schedule")
    parser.add_argument("--without", default="", help="numbers of faults to leave out: 3,4")
    parser.add_argument("--first", type=int, help="the first seed; by default one of the time")
    asked = parser.parse_args()
    if asked.seed is not None:
        return _replay(asked.seed, frozenset(map(int, filter(None, asked.without.split(",")))))
    first = int(time.time() * 1_000) if asked.first is None else asked.first
    processes, started = os.cpu_count() or 1, time.monotonic()
    with ProcessPoolExecutor(processes) as pool:
        parts = [pool.submit(search, first + n, processes, asked.seconds) for n in range(processes)]
        results = [part.result() for part in parts]
    took = time.monotonic() - started
    schedules = sum(done for done, _ in results)
    failures = sorted(seed for _, some in results for seed in some)
    for failed in failures[:3]:
        _say(str(shrink(failed)))
    _say(f"{schedules:,} schedules from seed {first} in {took:.0f} s, {len(failures)} failed")
    if failures:
        _say(f"failed seeds: {' '.join(map(str, failures))}")
    _say(f"BENCH sim.schedules_per_hour {schedules / took * 3600:.0f} 1/h")
    return int(bool(failures))


def _replay(seed: int, without: frozenset[int]) -> int:
    """Run one schedule and show all that happened; of a failing one also its shortest form."""
    try:
        ended = run_seed(seed, without)
    except FailedScheduleError as error:
        _say(str(error))
        if not without:
            _say(f"\nthe same with the fewest faults:\n{shrink(seed)}")
        return 1
    _say(f"seed {seed}: {ended.steps} steps, {len(ended.injected)} faults")
    _say("\n".join(f"  {line}" for line in ended.trace))
    return 0


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    sys.exit(main())
