"""The faults of one schedule: which kinds, how often, and when they end.

The generator of the schedule decides at each call. Faults are bounded in number, so that every
schedule ends, and all are written down, so that a failure can be read.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
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
    Fault.DENY: (0.25, 2),
    Fault.ABORT: (0.2, 2),
    Fault.BUSY: (0.2, 5),
    Fault.TWICE: (0.4, 3),
}
OUTAGES = (75.0, 75.0, 400.0, 1_000.0, 5_000.0)  # seconds: longer than calls, tasks and rounds are
REFUSALS = (1, 1, 3, 10, 1 << 30)  # calls that a missing right refuses
RATES = (0.005, 0.02, 0.1, 0.3)  # of the calls
DELAYS = (0.1, 5.0, 40.0, 130.0, 400.0)  # seconds


@dataclass(slots=True)
class FaultPlan:
    """The faults of one schedule."""

    rng: random.Random
    left: dict[Fault, int] = field(default_factory=dict)
    rates: dict[Fault, float] = field(default_factory=dict)
    injected: list[str] = field(default_factory=list)  # what went wrong so far
    skipped: frozenset[int] = frozenset()  # numbers of the faults that are left out
    number: int = 0  # of the faults so far, with those left out

    @staticmethod
    def choose(rng: random.Random, skipped: frozenset[int] = frozenset()) -> FaultPlan:
        """Return the faults of a new schedule; one schedule in ten has none."""
        faults = FaultPlan(rng, skipped=skipped)
        if rng.random() < 0.1:
            return faults
        for fault, (likely, most) in AMOUNTS.items():
            if rng.random() < likely:
                faults.left[fault] = rng.randint(1, most)
                faults.rates[fault] = rng.choice(RATES)
        return faults

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

    @property
    def calm(self) -> bool:
        """Whether nothing happened that may repeat work: no call and no message was in vain."""
        return all(one.startswith(("throttle", "refuse", "busy")) for one in self.injected)

    def delay(self) -> float:
        """Return how long a slow call takes, in seconds."""
        return self.rng.choice(DELAYS)

    def clear(self) -> None:
        """Let nothing go wrong any more."""
        self.left.clear()
