"""The input of a run's execution, whose name is the run's id."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from s3unzip import run_files
from s3unzip.model import ScanTask, Task, encode
from s3unzip.planning.lists import Shares, WorkList, can_overlap, choose_inline

if TYPE_CHECKING:
    from s3unzip.model import Location, PlanSummary, Request
    from s3unzip.runs.records import RunRecords
    from s3unzip.settings import Tuning

MAX_INPUT = 32 * 1024  # bytes; the limit of Step Functions is 262,144
InlineLists = Mapping[WorkList, Sequence[Task | ScanTask]]


def unplanned_input(request: Request, workers: int) -> dict[str, Any]:
    """Return the input of an execution whose first state is the planner.

    Args:
        request: what to plan.
        workers: that are started while the planner is at work.
    """
    return {
        "planned": False,
        "request": msgspec.to_builtins(request),
        "warm": list(range(workers)),
    }


def read_inline_lists(plan: PlanSummary, records: RunRecords, tuning: Tuning) -> InlineLists:
    """Return the items of the lists that inline Maps do; the plan's other lists stay in objects.

    Args:
        plan: of the run.
        records: of the run; read only if one of the lists is short.
        tuning: has the limit of items.
    """
    if not any(0 < count <= tuning.max_inline_tasks for count in _count_items(plan).values()):
        return {}
    shares = Shares(plan.whole_at_once, plan.split_at_once)
    chosen = choose_inline(records.tasks(), shares, tuning)
    return {
        name: list(records.scans()) if name is WorkList.SCAN and plan.scans else tasks
        for name, tasks in chosen.items()
    }


def planned_input(work: Location, plan: PlanSummary, inline: InlineLists) -> dict[str, Any]:
    """Return the input of the state machine of `infra.definition`; small for every archive.

    Args:
        work: the prefix of all runs.
        plan: of the run.
        inline: the items of inline Maps; left out if the input would exceed `MAX_INPUT`.
    """
    run = f"{work.key}runs/{plan.run.id}"
    counts = _count_items(plan)
    empty: dict[str, list[Any]] = {name.value: [] for name in counts if not counts[name]}
    given: dict[str, Any] = {
        "planned": True,
        "refused": False,
        "run": msgspec.to_builtins(plan.run),
        "work": {
            "bucket": work.bucket,
            "scan": f"{run}/{run_files.SCAN}",
            "rescan": f"{run}/{run_files.RESCAN}",
            "whole": f"{run}/{run_files.WHOLE if plan.slices else run_files.PLAN}",
            "slices": f"{run}/{run_files.SLICES}",
            "redo": f"{run}/{run_files.REDO}",
            "maps": f"{run}/{run_files.MAPS}",
            "linked": f"{run}/{run_files.LINK_COST}",
        },
        "inline": empty | {name.value: msgspec.to_builtins(inline[name]) for name in inline},
        "split_members": plan.split_members,
        "concurrency": max(1, plan.concurrency),
        "whole_at_once": max(1, plan.whole_at_once),
        "scans_at_once": max(1, min(plan.scans, plan.split_at_once)),
        "slices_at_once": max(1, plan.split_at_once),
    }
    if len(encode(given)) > MAX_INPUT:
        given["inline"] = empty
    in_objects = given["inline"].keys().isdisjoint((WorkList.SCAN, WorkList.SLICES))
    overlap = can_overlap(plan.scans, plan.slices, plan.split_at_once, plan.longest_task)
    given["overlap"] = in_objects and overlap
    return given


def _count_items(plan: PlanSummary) -> dict[WorkList, int]:
    return {
        WorkList.WHOLE: plan.tasks - plan.slices,
        WorkList.SCAN: plan.scans,
        WorkList.SLICES: plan.slices,
    }
