"""Rounds: how long the state machine waits before it tries what is left once more.

A round ends with tasks left where no worker was free, or after a fault. There
is no last round: the execution's life of seven days bounds them. The waits
keep the execution below Step Functions' 25,000 events of history: 13 events a
round, and the wait in seconds is at least the number of the round.
"""

from __future__ import annotations

from msgspec import Struct

MIN_WAIT = 15  # seconds
MAX_WAIT = 600


class Round(Struct, frozen=True):
    """One look at what is left."""

    left: int  # tasks
    wait: int = 0  # seconds until they are tried again
    rounds: int = 0  # before this one


def next_round(left: int, earlier: Round | None) -> Round:
    """Return this look; `earlier` is the one before, None if this is the first.

    After progress the wait is short, and otherwise twice as long as before.
    """
    if earlier is None:
        return Round(left, MIN_WAIT)
    rounds = earlier.rounds + 1
    back_off = MIN_WAIT if left < earlier.left else 2 * earlier.wait
    return Round(left, min(MAX_WAIT, max(MIN_WAIT, rounds, back_off)), rounds)
