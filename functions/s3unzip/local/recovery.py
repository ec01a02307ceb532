"""Resume a run that extracts to a folder, after its program was killed or the power failed.

The rules:

- Files are not synced during a run. A power failure can therefore destroy members and parts that
  are recorded as done: a file may be missing, truncated or filled with zeros.
- Before a run continues, each recorded member is checked again. Its file must exist and have the
  right size; this check needs one call for each member. If the machine was restarted since a
  process worked on the run, the file is also read to compare the CRC-32, and no part of a split
  member counts as done. The next round extracts the lost members again.
- Damaged records are treated as missing (`runs.records`). If the records of the plan are damaged,
  the recorded members are unknown, so the run starts over.
- A killed worker leaves files whose names begin with the mark of its run. These files are
  removed from the folders of the run's members.
- The caller holds the lock of the run (`local.runs`), so no other process writes at the same time.
"""

from __future__ import annotations

import logging
from posixpath import dirname

from s3unzip.extraction.existing_objects import is_same_object
from s3unzip.local.runs import machine_restarted_since
from s3unzip.model import Outcome, Status
from s3unzip.runs.records import REPORT
from s3unzip.runs.step import Step
from s3unzip.settling.results import abort_leftover_uploads, forget_outcomes
from s3unzip.stores.folder import FolderDestination

_log = logging.getLogger("s3unzip.recovery")


def forget_lost(step: Step, home: str) -> None:
    """Delete the outcomes of recorded members whose files are missing or have changed.

    Does nothing if the destination is not a folder. `home` is the folder that holds the records.
    """
    destination = step.destination
    if not isinstance(destination, FolderDestination):
        return
    machine_restarted = machine_restarted_since(home, step.run.id)

    def is_lost(outcome: Outcome) -> bool:
        if outcome.status is Status.FAILED:
            return False
        if machine_restarted:  # after a power failure, a file of the right size may contain zeros
            return not is_same_object(outcome, step.run.options, destination, step.calls)
        return destination.size(outcome.key) != outcome.size

    lost = forget_outcomes(step, is_lost)
    if lost:
        step.records.store.delete([REPORT])  # the report counts the lost members as extracted
        _log.warning("recorded members that are not in the folder: %d; extracting them again", lost)
    if machine_restarted:  # parts of split members may also be lost
        for task in list(step.records.tasks()):
            if task.slice is not None:
                step.records.delete_outcomes(task.id)


def remove_leftovers(step: Step) -> int:
    """Remove the temporary files of the run's killed workers; return the number of files."""
    destination = step.destination
    if not isinstance(destination, FolderDestination):
        return 0
    folders = {destination.root_prefix}  # the destination itself and the folders of the members
    # All slices of a member refer to the same span of the member list.
    for span in {task.rows for task in step.records.tasks()}:
        folders.update(dirname(row.key) + "/" for row in step.read_rows(span))
    return sum(destination.remove_own(folder, step.run.id) for folder in folders)


def drop_leftovers(step: Step) -> int:
    """Abort the uploads and remove the files of a run's killed workers; return the total number."""
    return abort_leftover_uploads(step, step.records.tasks()) + remove_leftovers(step)
