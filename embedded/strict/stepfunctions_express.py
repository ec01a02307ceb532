"""An Express execution lasts five minutes at most, then it is TIMED_OUT with States.Timeout.

That holds for a state machine of type EXPRESS here, and for children of a Distributed Map
in `stepfunctions_children`. The variable EMBEDDED_EXPRESS_SECONDS makes it shorter.
https://docs.aws.amazon.com/step-functions/latest/dg/choosing-workflow-type.html
"""

from __future__ import annotations

from typing import Any

from embedded.strict import stepfunctions_engine as engine
from embedded.strict.limits import EXPRESS_SECONDS


def express_seconds(execution: dict[str, Any]) -> float | None:
    """Return how long the execution may run; None for a Standard one."""
    return EXPRESS_SECONDS if execution["_type"] == "EXPRESS" else None


def install() -> None:
    """Limit Express executions."""
    engine.duration_rules.append(express_seconds)
