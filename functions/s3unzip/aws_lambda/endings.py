"""How executions of a run ended, for those that did not end well.

``failed.json`` is written when EventBridge tells of an execution that failed,
timed out or was aborted. The run may still be redriven days later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from s3unzip.runs.records import RunRecords

TOLD = ("name", "status", "startDate", "stopDate", "error", "cause")


def is_first_end(records: RunRecords, run: str, execution: str) -> bool:
    """Say whether the run ends for the first time: not after a retry, nor after a redrive.

    Only then its time since the archive was put says how fast the pipeline is.
    """
    return execution == run and not records.has_failure()


def note_failure(records: RunRecords, detail: Mapping[str, Any]) -> None:
    """Write down how the execution ended, and let the tasks of a redrive begin.

    `detail` is that of EventBridge's "Step Functions Execution Status Change".
    """
    records.write_failure({name: detail[name] for name in TOLD if name in detail})
    records.delete_stop()
