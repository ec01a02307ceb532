"""The results of the checks of a deployed environment: values only."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from msgspec import Struct


class CheckStatus(StrEnum):
    """How serious a result is."""

    OK = "ok"
    WARNING = "warning"  # it works, or it could not be checked
    FAILURE = "failure"  # archives are not extracted, or will not be


class Answer(NamedTuple):
    """What a check found: a `CheckResult` without the name of the check."""

    status: CheckStatus
    message: str
    advice: str = ""

    @classmethod
    def ok(cls, message: str) -> Answer:
        """Return an answer without advice."""
        return cls(CheckStatus.OK, message)

    @classmethod
    def warning(cls, message: str, advice: str) -> Answer:
        """Return an answer that does not stop archives."""
        return cls(CheckStatus.WARNING, message, advice)

    @classmethod
    def failure(cls, message: str, advice: str) -> Answer:
        """Return an answer that stops archives, now or soon."""
        return cls(CheckStatus.FAILURE, message, advice)


class CheckResult(Struct, frozen=True):
    """What one check found."""

    name: str  # of the check: "concurrency"
    status: CheckStatus
    message: str  # the fact, one line
    advice: str = ""  # what to do; empty if there is nothing to do


class Diagnosis(Struct, frozen=True):
    """All results of one environment, as ``s3unzip doctor --json`` prints them."""

    environment: str
    checks: tuple[CheckResult, ...]

    @property
    def exit_code(self) -> int:
        """1 if a check failed, else 0."""
        return 1 if self.count(CheckStatus.FAILURE) else 0

    def count(self, status: CheckStatus) -> int:
        """Return how many checks have this status."""
        return sum(1 for one in self.checks if one.status is status)
