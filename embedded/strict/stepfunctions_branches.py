"""A redriven Parallel state or inline Map runs only the branches that did not succeed.

Each goes on at its own state that failed. A retry, a loop, or a result that was too large
runs all of them again.
https://docs.aws.amazon.com/step-functions/latest/dg/redrive-executions.html
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from embedded.strict import stepfunctions_engine as engine

if TYPE_CHECKING:
    from collections.abc import Callable

# A branch's place: for each state around it, from the outermost, the branch and its item.
Place = tuple[tuple[int, int | None], ...]


def walk_branch(
    states: dict[str, Any],
    start: str,
    data: Any,
    execution: dict[str, Any],
    ctx: dict[str, Any],
) -> Any:
    """Replace MiniStack's ``_run_sub_machine``: a branch, or an item of an inline Map."""
    index = ctx.get("Map", {}).get("Item", {}).get("Index")
    place: Place = (*ctx.get("_branch", ()), (id(states), index))
    outputs = execution.setdefault("_outputs", {})
    if place not in outputs:
        start, data = execution["_places"].get(place, (start, data))
        outputs[place] = engine.walk(states, start, data, execution, {**ctx, "_branch": place})
    return outputs[place]


def _forget(execution: dict[str, Any], around: Place, branches: set[int]) -> None:
    """Let the branches, and what is inside them, begin anew."""
    for kept in (execution.setdefault("_outputs", {}), execution["_places"]):
        for place in list(kept):
            inside = len(place) > len(around) and place[: len(around)] == around
            if inside and place[len(around)][0] in branches:
                del kept[place]


def _remembering(run: Callable[..., Any]) -> Callable[..., Any]:
    """Return `run`, an attempt at a Parallel state or a Map, with its branches kept."""

    def attempt(
        state: dict[str, Any], data: Any, execution: dict[str, Any], ctx: dict[str, Any]
    ) -> Any:
        around: Place = ctx.get("_branch", ())
        inner = state.get("Branches") or [state.get("ItemProcessor") or state["Iterator"]]
        # Of the definition, which the execution keeps: these numbers stay the same.
        branches = {id(branch["States"]) for branch in inner}
        key, generation = (around, *sorted(branches)), execution["redriveCount"]
        entered = execution.setdefault("_entered", {})
        if entered.get(key, generation) == generation:  # not left unfinished before a redrive
            _forget(execution, around, branches)
        entered[key] = generation
        result = run(state, data, execution, ctx)
        del entered[key]
        _forget(execution, around, branches)
        return result

    return attempt


def install() -> None:
    """Keep what branches did until their state has ended."""
    names = vars(engine.sfn)
    names["_run_sub_machine"] = walk_branch
    for name in ("_run_parallel_branches", "_run_map_items"):
        names[name] = _remembering(names[name])
