"""Nested archives: which archives to extract, below which prefix and within which budget.

A nested archive has a run of its own, which other modules start after the run that extracted the
archive. A member is treated as an archive if its name ends in ``.zip``; only the plan of its run
shows whether the member is an archive. The members of a nested archive are written below its key
without the ``.zip``. `Options` limits the depth. All runs below one archive share a `Budget`, so
the archive cannot cause more runs or more data than the settings allow.
"""

import re
from collections import Counter
from collections.abc import Iterator
from heapq import nsmallest
from operator import attrgetter

from msgspec.structs import replace

from s3unzip.context import Context
from s3unzip.errors import Finding
from s3unzip.extraction.existing_objects import is_same_object
from s3unzip.model import (
    Budget,
    NestedRun,
    Options,
    Outcome,
    Report,
    Request,
    Run,
    Status,
    Verdict,
)
from s3unzip.runs.records import RunRecords
from s3unzip.settings import Tuning

SUFFIX = ".zip"
EXTRACTED = frozenset({Verdict.COMPLETED, Verdict.COMPLETED_WITH_ERRORS})


def has_nested(report: Report) -> bool:
    """Return whether a run that has ended may have nested archives to extract."""
    return report.options.nested_depth > 0 and report.verdict in EXTRACTED


def first_budget(tuning: Tuning) -> Budget:
    """Return the budget shared by all runs under one outermost archive."""
    return Budget(tuning.nested_archives, tuning.nested_members, tuning.nested_bytes)


def subtract_run(budget: Budget, report: Report, context: Context) -> Budget:
    """Return the budget that a nested run leaves for the runs below it.

    Members and bytes are taken from the run's plan, not from its outcomes. A repeated run therefore
    leaves the same budget, and the runs below it have the same options and ids.

    Args:
        budget: the budget of the nested run.
        report: the report of the nested run.
        context: the context of the step.
    """
    archives = max(0, budget.archives - 1)
    plan = RunRecords.open(context.stores, report.run, context.calls()).find_plan()
    if plan is None:  # the archive was refused
        return replace(budget, archives=archives)
    return Budget(
        archives, max(0, budget.members - plan.selected), max(0, budget.size - plan.bytes_out)
    )


def find_nested(run: Run, context: Context, limit: int) -> tuple[list[Outcome], list[NestedRun]]:
    """Return the nested archives to extract, and the refused archives with the reasons.

    Of the archives beyond the limit, only the first is listed as refused.

    Args:
        run: the run that extracted the archives.
        context: the context of the step.
        limit: the maximum number of archives; this limit also bounds the memory. The archives that
            come first in the directory are chosen.
    """
    calls = context.calls()
    records = RunRecords.open(context.stores, run.id, calls)
    # One archive beyond the limit shows whether archives are refused.
    archives = _first_archives(records, limit + 1)
    prefixes = Counter(_nested_prefix(archive.key) for archive in archives[:limit])
    findings_by_prefix = {
        prefix: Finding("nested-prefix-taken", message)
        for prefix, message in _find_taken(records, prefixes).items()
    }
    findings_by_prefix[""] = Finding(  # `_nested_prefix` returns "" for these names
        "nested-no-stem", "its name is empty once .zip is removed, so its members have no prefix"
    )
    destination = context.stores.destination(run.destination)
    accepted: list[Outcome] = []
    refused: list[NestedRun] = []
    for archive in archives[:limit]:
        finding = findings_by_prefix.get(_nested_prefix(archive.key))
        if finding is None and not is_same_object(archive, run.options, destination, calls):
            finding = Finding(
                "nested-changed", "the object was replaced or deleted after it was extracted"
            )
        if finding is None:
            accepted.append(archive)
        else:
            refused.append(NestedRun(archive.key, reason=finding.code, message=finding.message))
    refused += [
        NestedRun(
            archive.key,
            reason="nested-budget",
            message=f"the budget of {limit} nested archives is spent",
        )
        for archive in archives[limit:]
    ]
    return accepted, refused


def _first_archives(records: RunRecords, count: int) -> list[Outcome]:
    """Return the first `count` archives in the directory that were extracted or unchanged."""
    candidates = (
        outcome
        for outcome in records.all_outcomes()
        if outcome.status is not Status.FAILED and outcome.key.lower().endswith(SUFFIX)
    )
    # Sort by index, which is the same in each run, unlike the order in which outcomes are recorded.
    # A repeated task that ends late can record an archive again, so read two outcomes for each
    # archive.
    first_outcomes = nsmallest(2 * count, candidates, key=attrgetter("index"))
    by_index = {outcome.index: outcome for outcome in first_outcomes}
    return list(by_index.values())[:count]


def _nested_prefix(key: str) -> str:
    """Return the prefix of a nested archive's members.

    The prefix is empty if the name without ``.zip`` contains nothing but dots, as in "..zip".
    `find_nested` refuses such an archive.
    """
    name = key.rpartition("/")[2]
    if not name[: -len(SUFFIX)].strip("."):
        return ""
    return key[: -len(SUFFIX)] + "/"


def nested_request(run: Run, key: str, budget: Budget) -> Request:
    """Return the request that extracts a nested archive.

    Args:
        run: the run that extracted the archive. Its password, its encoding, its object properties,
            `on_conflict` and `lenient` also apply to the archive; its filters and its key template
            do not.
        key: the key of the archive at the destination of `run`.
        budget: the budget for the archive and the archives inside it.
    """
    options = run.options
    return Request(
        source=replace(run.destination, key=key),
        destination=replace(run.destination, key=_nested_prefix(key)),
        options=Options(
            key_template="{member}",
            on_conflict=options.on_conflict,
            lenient=options.lenient,
            encoding=options.encoding,
            password_ref=options.password_ref,
            nested_depth=options.nested_depth - 1,
            nested_budget=budget,
            objects=options.objects,
        ),
        event_time=run.event_time,
        route=run.route,
    )


def nested_requests(run: Run, report: Report, context: Context) -> Iterator[Request]:
    """Yield the requests for the nested archives of a run that has ended; record the refused ones.

    The archives get equal shares of the budget, so that their runs can be concurrent and
    independent.
    """
    budget = first_budget(context.tuning)
    own_budget = run.options.nested_budget
    if own_budget is not None:
        # The number of archives does not change: when the outer run computed `share`, it subtracted
        # this archive itself.
        budget = replace(subtract_run(own_budget, report, context), archives=own_budget.archives)
    accepted, refused = find_nested(run, context, budget.archives)
    if refused:
        RunRecords.open(context.stores, run.id, context.calls()).write_nested(refused)
    shares = max(1, len(accepted))  # 1 avoids a division by zero
    share = Budget(
        (budget.archives - len(accepted)) // shares,  # without the accepted archives
        budget.members // shares,
        budget.size // shares,
    )
    for outcome in accepted:
        yield nested_request(run, outcome.key, share)


def _find_taken(records: RunRecords, prefixes: Counter[str]) -> dict[str, str]:
    """Return the prefixes that cannot be used because they are taken, each with a message."""
    taken = {
        prefix: f"{archives} archives would be extracted to {prefix}"
        for prefix, archives in prefixes.items()
        if archives > 1
    }
    if not prefixes:  # the records do not need to be read
        return taken
    for outcome in records.all_outcomes():
        key = outcome.key
        if key + "/" in prefixes:
            taken.setdefault(key + "/", f"a member of the outer archive is called {key}")
        for slash in re.finditer("/", key):
            prefix = key[: slash.end()]
            if prefix in prefixes:
                taken.setdefault(prefix, f"members of the outer archive are below {prefix}")
    return taken
