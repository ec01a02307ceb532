"""Why an execution cannot be redriven, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from botocore.exceptions import ClientError


def why_not_redriven(run: str, state: str, error: ClientError) -> str:
    """Return why Step Functions does not redrive an execution in `state`, and what helps.

    It redrives executions that failed, timed out or were aborted, within 14 days after their end
    (AWS Step Functions Developer Guide, "Restarting state machine executions with redrive").
    """
    if state == "RUNNING":
        return f"{run}: is running; wait for its end: s3unzip watch {run}"
    if state == "SUCCEEDED":
        return (
            f"{run}: all its tasks have ended, nothing is left to redrive; "
            f"s3unzip retry {run} tries failed members again"
        )
    reason = error.response.get("Error", {}).get("Message", "")
    return f"{run}: {state}, cannot be redriven: {reason}"
