"""How executions of a run ended, for those that did not end well.

``failed.json`` is written when EventBridge tells of an execution that failed,
timed out or was aborted. The run may still be redriven days later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from s3unzip import run_files
from s3unzip.errors import NotFoundError
from s3unzip.model import encode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from s3unzip.stores.ports import RunStore

TOLD = ("name", "status", "startDate", "stopDate", "error", "cause")


def is_first_end(work: RunStore, run: str, execution: str) -> bool:
    """Say whether the run ends for the first time: not after a retry, nor after a redrive.

    Only then its time since the archive was put says how fast the pipeline is.
    """
    if execution != run:
        return False
    try:
        work.read(run_files.FAILED)
    except NotFoundError:
        return True
    return False


def note_failure(work: RunStore, detail: Mapping[str, Any]) -> None:
    """Write down how the execution ended, and let the tasks of a redrive begin.

    `detail` is that of EventBridge's "Step Functions Execution Status Change".
    """
    work.write(run_files.FAILED, [encode({name: detail[name] for name in TOLD if name in detail})])
    work.delete([run_files.STOP])
