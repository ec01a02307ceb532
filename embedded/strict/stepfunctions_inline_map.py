"""An inline Map runs 40 iterations at once at most, whatever its MaxConcurrency.

MaxConcurrencyPath, which MiniStack does not read, is resolved too.
https://docs.aws.amazon.com/step-functions/latest/dg/state-map-inline.html
"""

from __future__ import annotations

from typing import Any

from embedded.strict import stepfunctions_engine as engine
from embedded.strict.limits import INLINE_MAP_CONCURRENCY


def install() -> None:
    """Cap the concurrency of inline Maps."""
    names = vars(engine.sfn)
    run = names["_run_map_items"]

    def run_map_items(
        state: dict[str, Any], data: Any, execution: dict[str, Any], ctx: dict[str, Any]
    ) -> Any:
        processor = state.get("ItemProcessor") or state.get("Iterator") or {}
        if (processor.get("ProcessorConfig") or {}).get("Mode") != "DISTRIBUTED":
            wanted = state.get("MaxConcurrency")
            if path := state.get("MaxConcurrencyPath"):
                wanted = engine.sfn._resolve_path_or_ctx(path, data, ctx)
            if not isinstance(wanted, str):  # a JSONata expression stays as it is
                at_once = min(int(wanted or INLINE_MAP_CONCURRENCY), INLINE_MAP_CONCURRENCY)
                state = {**state, "MaxConcurrency": at_once}
        return run(state, data, execution, ctx)

    names["_run_map_items"] = run_map_items
