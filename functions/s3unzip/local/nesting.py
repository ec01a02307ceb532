"""A run on one machine and, after it, the runs of the archives that it extracted."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from s3unzip.local.runner import run_archive
from s3unzip.model import NestedRun
from s3unzip.runs.records import RunRecords
from s3unzip.settling.nested import (
    find_nested,
    first_budget,
    has_nested,
    nested_request,
    record_nested,
    spend,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from s3unzip.context import Context
    from s3unzip.local.locking import RunLocks
    from s3unzip.local.runner import Pool
    from s3unzip.model import PlanSummary, Report, Run


def run_nested(
    report: Report,
    context: Context,
    make_pool: Callable[[Run], Pool],
    planned: Callable[[PlanSummary], None],
    locks: RunLocks | None = None,
) -> list[NestedRun]:
    """Extract the archives that a settled run extracted, level by level, one after the other.

    Each archive gets the rest of the budget after the archives before it. Returns the result of
    each; ``nested.jsonl`` of the outer run has the same results. `locks` keeps other processes off
    the runs.

    Raises:
        UsageError, StorageError, ServiceFaultError, InterruptedRunError: as `run_archive`.
    """
    left = first_budget(context.tuning)
    above = deque([report])
    known: list[NestedRun] = []
    while above:
        outer = above.popleft()
        if not has_nested(outer):
            continue
        run = RunRecords.open(context.stores, outer.run).read_run()
        found, nested = find_nested(run, context, left.archives)
        for outcome in found:
            request = nested_request(run, outcome.key, left)
            claim = None if locks is None else locks.claim(request)
            below = run_archive(request, context, make_pool, planned, claim)
            left = spend(left, below, context)
            nested.append(
                NestedRun(outcome.key, below.run, below.verdict, below.reason, below.message)
            )
            above.append(below)
        record_nested(run, context, nested)
        known += nested
    return known
