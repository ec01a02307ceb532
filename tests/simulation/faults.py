"""The faults of one schedule: which kinds, how often, and when they end.

The generator of the schedule decides at each call. Faults are bounded in number, so that every
schedule ends, and all are written down, so that a failure can be read.
"""

import random
from enum import StrEnum


class Fault(StrEnum):
    """One thing that goes wrong at a call."""

    THROTTLE = "throttle"  # "slow down", nothing done
    REFUSE = "refuse"  # a service fault, nothing done
    LOSE = "lose"  # done, but the answer never comes
    DELAY = "delay"  # it takes long
    CRASH = "crash"  # the process dies before the call does anything
    CRASH_AFTER = "crash-after"  # it is done, then the process dies
    OUTAGE = "outage"  # every call, or every call of one kind, is refused for a while
    OVERWRITE = "overwrite"  # somebody puts another archive under the key
    REMOVE = "remove"  # somebody deletes the archive
    EXPIRE = "expire"  # somebody aborts an upload, or the bucket's lifecycle rule does
    DAMAGE = "damage"  # a record of a run is lost, emptied, cut or flipped
    DENY = "deny"  # a right is missing, for some calls or until an operator gives it back
    ABORT = "abort"  # somebody aborts a run
    BUSY = "busy"  # no worker is free for an invocation
    TWICE = "twice"  # a message or an event is delivered twice


# How likely a schedule has the fault at all, and at most how often.
AMOUNTS = {
    Fault.THROTTLE: (0.3, 6),
    Fault.REFUSE: (0.4, 6),
    Fault.LOSE: (0.5, 6),
    Fault.DELAY: (0.4, 6),
    Fault.CRASH: (0.4, 4),
    Fault.CRASH_AFTER: (0.4, 4),
    Fault.OUTAGE: (0.3, 2),
    Fault.OVERWRITE: (0.2, 2),
    Fault.REMOVE: (0.1, 1),
    Fault.EXPIRE: (0.1, 2),
    Fault.DAMAGE: (0.0, 0),  # in schedules of one kind
    Fault.DENY: (0.25, 2),
    Fault.ABORT: (0.2, 2),
    Fault.BUSY: (0.2, 5),
    Fault.TWICE: (0.4, 3),
}
OUTAGES = (75.0, 75.0, 400.0, 1_000.0, 5_000.0)  # seconds: longer than calls, tasks and rounds are
REFUSALS = (1, 1, 3, 10, 1 << 30)  # calls that a missing right refuses
RATES = (0.005, 0.02, 0.1, 0.3)  # of the calls
DELAYS = (0.1, 5.0, 40.0, 130.0, 400.0)  # seconds


class FaultPlan:
    """The faults of one schedule; one in ten has none.

    Args:
        skipped: numbers of the faults that are left out.
    """

    def __init__(self, rng: random.Random, skipped: frozenset[int] = frozenset()) -> None:
        self.rng = rng
        self.skipped = skipped
        self.left: dict[Fault, int] = {}
        self.rates: dict[Fault, float] = {}
        self.injected: list[str] = []  # what went wrong so far
        self.number = 0  # of the faults so far, with those left out
        faulty = rng.random() >= 0.1
        for fault, (likely, most) in AMOUNTS.items() if faulty else ():
            if rng.random() < likely:
                self.left[fault] = rng.randint(1, most)
                self.rates[fault] = rng.choice(RATES)

    def injects(self, fault: Fault, call: str) -> bool:
        """Say whether `fault` happens at `call`; note it if so."""
        left = self.left.get(fault, 0)
        if not left or self.rng.random() >= self.rates[fault]:
            return False
        self.left[fault] = left - 1
        self.number += 1
        if self.number in self.skipped:
            return False
        self.injected.append(f"{fault} {call}")
        return True

    def delay(self) -> float:
        return self.rng.choice(DELAYS)
