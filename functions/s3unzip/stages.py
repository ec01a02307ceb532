"""The life of a member that is split among several tasks: its stages and their order.

The rules:

1. A member is split if it is huge and deflated (scans, then slices), or stored and copied by
   several tasks (slices only). The stage after `LINK` is `SLICE`, `STREAM` or `DONE`; the stage
   after `FINISH` is `STREAM` or `DONE`.
2. Workers perform the tasks of a stage concurrently and in any order. The stage ends when all its
   tasks have ended. Settling carries out the stages without tasks, one member per call.
3. The stage of a member is not recorded. Each step derives the stage anew from the tasks and
   their outcomes (`current_stage`), so a step may be repeated, even late or concurrently.
4. A later stage takes precedence: tasks of earlier stages that end late have no effect.
5. The outcome of a slice is not the outcome of its member. A slice has an outcome only if it
   failed; then the member is streamed. Only `STREAM` and `DONE` set the outcome of a member.
6. A large member that is not split has only the stage `STREAM`. Members of batches, and stored
   members that one task copies, have no stage.
"""

from collections.abc import Mapping
from enum import StrEnum


class Stage(StrEnum):
    """The stages in the life of a split member, in chronological order."""

    SCAN = "scan"  # tasks find the member's segments
    LINK = "link"  # settling links the segments, starts the upload and creates the slices
    SLICE = "slice"  # tasks upload the slices
    FINISH = "finish"  # settling compares the slices with the directory and completes the upload
    STREAM = "stream"  # one task inflates the whole member, because its slices do not fit together
    DONE = "done"  # settling has recorded the outcome of the member


# For each stage with tasks, the stage that follows when all its tasks have ended.
AFTER_TASKS = {Stage.SCAN: Stage.LINK, Stage.SLICE: Stage.FINISH, Stage.STREAM: Stage.DONE}


def current_stage(ended: Mapping[Stage, bool]) -> Stage:
    """Return the stage of a member: its latest recorded stage, or the stage that follows.

    Args:
        ended: for each stage with a recorded task or outcome, whether all its tasks have ended.
    """
    latest = next(stage for stage in reversed(Stage) if stage in ended)
    if ended[latest]:
        # A stage that is not in `AFTER_TASKS` does not end with its tasks.
        return AFTER_TASKS.get(latest, latest)
    return latest


def gives_outcome(stage: Stage | None) -> bool:
    """Return whether tasks in `stage`, or without a stage (None), set the outcomes of members."""
    return stage in {None, Stage.STREAM, Stage.DONE}
