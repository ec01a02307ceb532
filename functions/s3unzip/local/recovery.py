"""Resume a run into a folder after its program was killed, or after a power failure.

The rules:

1. Files are not synced while a run is at work. So a power failure may lose members and parts that
   are on record as done: a file may be missing, cut short, or hold zeros.
2. Before a run goes on, each member on record is checked again. Its file must exist with the right
   size: one call for each member. If the machine was restarted since a process worked on the run,
   the file is read and its CRC-32 compared, and no part of a split member counts as done. The next
   round does lost members again.
3. Damaged records count as absent (`runs.records`).
4. A killed worker leaves files whose names begin with the mark of its run. They are removed from
   the folders of the run's members.
5. The caller holds the lock of the run (`local.runs`), so no other process writes now.
"""

from __future__ import annotations

import logging
from posixpath import dirname

from s3unzip.extraction.existing_objects import is_same_object
from s3unzip.local.runs import was_restarted
from s3unzip.model import Outcome, Status
from s3unzip.runs.records import REPORT
from s3unzip.runs.step import Step
from s3unzip.settling.results import drop_uploads, forget_outcomes
from s3unzip.stores.folder import FolderDestination
from s3unzip.stores.ports import Destination

_log = logging.getLogger("s3unzip.recovery")


def may_have_lost(home: str, run: str, destination: Destination) -> bool:
    """Return whether a power failure may have lost members that are on record as done."""
    return isinstance(destination, FolderDestination) and was_restarted(home, run)


def forget_lost(step: Step, home: str) -> None:
    """Delete the outcomes of members that are on record as done, but are not in the folder.

    Does nothing if the destination is not a folder. `home` is the folder of the records.
    """
    destination = step.destination
    if not isinstance(destination, FolderDestination):
        return
    restarted = was_restarted(home, step.run.id)

    def is_lost(outcome: Outcome) -> bool:
        if outcome.status is Status.FAILED:
            return False
        if restarted:
            return not is_same_object(outcome, step.run.options, destination, step.calls)
        return destination.size(outcome.key) != outcome.size

    lost = forget_outcomes(step, is_lost)
    if lost:
        step.records.store.delete([REPORT])  # it counts the lost members as extracted
        _log.warning("members on record that are not in the folder: %d; done again", lost)
    if restarted:  # parts of split members may be lost, too
        for task in list(step.records.tasks()):
            if task.slice is not None:
                step.records.delete_outcomes(task.id)


def remove_leftovers(step: Step) -> int:
    """Remove the temporary files of killed workers of the run; return their number."""
    destination = step.destination
    if not isinstance(destination, FolderDestination):
        return 0
    folders = {destination.start}  # the destination itself, and those of the members
    spans = {task.rows for task in step.records.tasks()}  # the slices of a member share one
    for span in spans:
        folders.update(dirname(row.key) + "/" for row in step.read_rows(span))
    return sum(destination.remove_own(folder, step.run.id) for folder in folders)


def drop_leftovers(step: Step) -> int:
    """Abort the uploads and remove the files of a run's killed workers; return their number."""
    return drop_uploads(step, step.records.tasks()) + remove_leftovers(step)
