"""What the model knows of archives and runs, and the words of the documents."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple

OVERWRITE, SKIP_UNCHANGED, NEVER = "overwrite", "skip-unchanged", "never"
EXTRACTED, UNCHANGED, FAILED = "extracted", "unchanged", "failed"
COMPLETED, WITH_ERRORS = "COMPLETED", "COMPLETED_WITH_ERRORS"
REJECTED, CHANGED, RUN_FAILED = "REJECTED", "SOURCE_CHANGED", "FAILED"
STOPS_RUN = frozenset({"AccessDeniedError", "NotFoundError", "StoreFullError", "StoreRefusesError"})
MAX_IDLE_ROUNDS = 20  # without progress; no fault here lasts as long
ENDED_WELL = frozenset({COMPLETED, WITH_ERRORS})
TITLES = dict.fromkeys((COMPLETED, WITH_ERRORS), "Archive Extracted")
TITLES |= {REJECTED: "Archive Rejected"} | dict.fromkeys((CHANGED, RUN_FAILED), "Archive Failed")
Json = dict[str, Any]


class ViolationError(AssertionError):
    """What happened is not what the documents say."""


class MemberFacts(NamedTuple):
    """One member as it truly is."""

    key: str
    body: bytes
    right: bool = True  # False: its data or its name is refused


class ArchiveFacts(NamedTuple):
    """One version of an archive as it truly is."""

    members: tuple[MemberFacts, ...]
    broken: bool = False  # the index is refused
    nested: tuple[tuple[str, ArchiveFacts], ...] = ()  # archives inside, by key


class Written(NamedTuple):
    """An object as it is visible at the destination."""

    body: bytes
    run: str | None  # that wrote it; None: it was there before


NOTHING = Written(b"no object", None)  # no member has these bytes


class Attempt(NamedTuple):
    """One invocation that works on a task, and what was on record when it began."""

    run: str
    finished: frozenset[str]  # keys with an outcome then
    stops: int  # stops that were deleted before
    stopped: int | None  # the number of the stop that was on record; None: there was none


@dataclass(slots=True)
class RunState:
    """What is known of one run."""

    facts: ArchiveFacts
    outcomes: dict[str, dict[str, str]] = field(default_factory=dict)  # by task: status by key
    written: Counter[str] = field(default_factory=Counter)  # how often each key became visible
    reports: list[Json] = field(default_factory=list)
    announced: list[str] = field(default_factory=list)  # verdicts
    right: str = ""  # the verdict that its archive deserved when its last report was written
    idle_rounds: int = 0  # reports in a row with as many missing members as the one before
    retried: bool = False  # an operator tried failed members again
    stops: int = 0  # how often stop.json was deleted
    stopped: bool = False  # it is there
    compares: bool = False  # members that exist are not written if they are equal

    def member(self, key: str) -> MemberFacts | None:
        """Return the member of a key."""
        return next((member for member in self.facts.members if member.key == key), None)
