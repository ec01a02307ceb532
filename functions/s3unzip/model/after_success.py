"""What becomes of an archive after its run: the rule, and what came of it.

The rule is no part of a run's identity, because it changes nothing that the run writes.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from s3unzip.model.location import Location


class SourceAction(StrEnum):
    """What is done to the archive."""

    DELETE = "delete"
    MOVE = "move"
    TAG = "tag"


class AfterSuccess(Struct, frozen=True, omit_defaults=True):
    """What is done to the archive when its run is COMPLETED and the report is written."""

    action: SourceAction
    target: Location | None = None  # of a move: where the archive goes; in settings: a prefix
    tags: dict[str, str] = {}  # of a tag: they are added to the archive's tags

    def __post_init__(self) -> None:
        """Refuse a rule that says too little or too much.

        Raises:
            ValueError: it has no target or tags where its action needs them, or has others.
        """
        if (self.action is SourceAction.MOVE) != (self.target is not None):
            raise ValueError("a target goes with the action move, and with no other")
        if (self.action is SourceAction.TAG) != bool(self.tags):
            raise ValueError("tags go with the action tag, and with no other")

    def below(self, path: str) -> AfterSuccess:
        """Return the rule of one archive, which a move puts at `path` below the target."""
        if self.target is None:
            return self
        target = self.target
        return replace(self, target=Location(target.scheme, target.bucket, target.key + path))


class SourceState(StrEnum):
    """How far the action came."""

    PENDING = "pending"  # the report is written, the action is next
    DONE = "done"
    KEPT = "kept"  # the archive is another one now, or nothing was extracted: it is left alone
    FAILED = "failed"  # a redrive, a retry or a repeated event does it again


class SourceResult(Struct, frozen=True, omit_defaults=True):
    """What became of the archive after its run, as the report says it."""

    action: SourceAction
    state: SourceState
    target: Location | None = None  # of a move
    message: str | None = None

    def __str__(self) -> str:
        did = {SourceAction.DELETE: "deleted", SourceAction.TAG: "tagged"}
        done = did.get(self.action) or f"moved to {self.target}"
        if self.state is SourceState.DONE:
            return f"the archive is {done}"
        why = f": {self.message}" if self.message else ""
        return f"the archive is not {done}{why}"
