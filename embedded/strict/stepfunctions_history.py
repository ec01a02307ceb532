"""A Standard execution whose history reaches 25,000 events fails with States.Runtime.

MiniStack records fewer events of a task than AWS (no TaskStarted, no LambdaFunction... ones),
so that AWS is the stricter one. Express executions have no history.
https://docs.aws.amazon.com/step-functions/latest/dg/bp-history-limit.html
"""

from __future__ import annotations

from typing import Any

from embedded.strict import stepfunctions_engine as engine
from embedded.strict.limits import HISTORY_EVENTS


def install() -> None:
    """Count events; drop those of Express children."""
    names = vars(engine.sfn)
    add = names["_add_event"]

    def add_event(
        execution: dict[str, Any], kind: str, details: dict[str, Any] | None = None
    ) -> Any:
        if execution.get("_express"):
            return None
        # The last place is for the event of the execution's own end.
        if len(execution["events"]) >= HISTORY_EVENTS - 1 and not kind.startswith("Execution"):
            cause = (
                f"The execution reached the maximum number of history events ({HISTORY_EVENTS})."
            )
            raise engine.sfn._ExecutionError("States.Runtime", cause)
        return add(execution, kind, details)

    names["_add_event"] = add_event
