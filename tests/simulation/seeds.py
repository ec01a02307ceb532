"""What a seed is: a schedule in an account, or, where it ends with 0, one on one machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.local import run_local
from tests.simulation.schedule import FailedScheduleError, run_schedule

if TYPE_CHECKING:
    from tests.simulation.schedule import Ended

ON_ONE_MACHINE = 0  # the last digit


def run_seed(seed: int, skipped: frozenset[int] = frozenset()) -> Ended:
    """Run the schedule of `seed`, without the faults of these numbers.

    Raises:
        FailedScheduleError: the model was violated, or the schedule never ended.
    """
    if seed % 10 == ON_ONE_MACHINE:
        return run_local(seed, skipped)
    return run_schedule(seed, skipped)


def shrink(seed: int) -> FailedScheduleError | None:
    """Leave out the faults that a failing schedule does not need; None if it does not fail.

    What is left fails for the same sentence of the documents, and no fault of it can be left out
    alone.
    """
    found = _failure(seed, frozenset())
    if found is None:
        return None
    skipped: frozenset[int] = frozenset()
    for number in range(found.faults, 0, -1):
        fewer = _failure(seed, skipped | {number})
        if fewer is not None and fewer.sentence == found.sentence:
            found, skipped = fewer, skipped | {number}
    return found


def _failure(seed: int, skipped: frozenset[int]) -> FailedScheduleError | None:
    try:
        run_seed(seed, skipped)
    except FailedScheduleError as error:
        return error
    return None
