"""The life of a member that is split over several tasks: its stages, and their order.

The rules:

1. A member is split if it is huge and deflated (scans, then slices), or stored and copied over
   several tasks (slices only). After `LINK` it is in `SLICE`, `STREAM` or `DONE`, after `FINISH`
   in `STREAM` or `DONE`.
2. Workers do the tasks of a stage concurrently and in any order. The stage ends when all its tasks
   have ended. Settling does the other stages, one member per call.
3. A member's stage is not recorded. `current_stage` derives it from the tasks and their outcomes,
   so each step may be repeated, late or at once: it derives the stage anew.
4. A later stage wins: tasks of earlier stages that come late change nothing.
5. The outcome of a part is not the outcome of its member. A slice has one only if it failed, and
   then the member is streamed. Only `STREAM` and `DONE` set the outcome of a member.
6. A large member that is not split has only the stage `STREAM`. Members of batches, and stored
   members that one task copies, have no stage.
"""

from collections.abc import Mapping
from enum import StrEnum


class Stage(StrEnum):
    """A stage in the life of a split member, the first one first."""

    SCAN = "scan"  # tasks find the member's segments
    LINK = "link"  # settling links the segments, begins the upload and makes the slices
    SLICE = "slice"  # tasks upload the slices
    FINISH = "finish"  # settling compares the slices with the directory and completes the upload
    STREAM = "stream"  # one task inflates the whole member, because its parts do not make it
    DONE = "done"  # settling has given the member its outcome


# The stages that workers do, each with the stage that follows when all its tasks have ended.
AFTER_TASKS = {Stage.SCAN: Stage.LINK, Stage.SLICE: Stage.FINISH, Stage.STREAM: Stage.DONE}


def current_stage(ended: Mapping[Stage, bool]) -> Stage:
    """Return the stage of a member.

    Args:
        ended: by stage with a task or an outcome on record, whether all its tasks have ended.
    """
    latest = max(ended, key=list(Stage).index)  # in the order of declaration
    if ended[latest]:
        return AFTER_TASKS.get(latest, latest)
    return latest


def gives_outcome(stage: Stage | None) -> bool:
    """Return whether a task of this stage records outcomes of members; None: it has no stage."""
    return stage in {None, Stage.STREAM, Stage.DONE}
