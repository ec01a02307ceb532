"""Nested archives: which ones are extracted, below which prefix, within which budget.

A nested archive has a run of its own after the run that extracted it; other modules start it. A
member is taken for an archive if its name ends in ``.zip``; the plan of its run finds out whether
it is one. The members of a nested archive are written below its key without the ``.zip``. `Options`
limits the depth. All runs below one archive share a `Budget`, so it cannot cause more runs or more
data than the settings allow.
"""

from collections.abc import Collection, Iterator, Mapping
from heapq import nsmallest
from operator import attrgetter

from msgspec.structs import replace

from s3unzip.context import Context
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
    """Return whether a run that ended may have nested archives to extract."""
    return report.options.nested_depth > 0 and report.verdict in EXTRACTED


def first_budget(tuning: Tuning) -> Budget:
    """Return the budget that all runs below one outermost archive share."""
    return Budget(tuning.nested_archives, tuning.nested_members, tuning.nested_bytes)


def spend(budget: Budget, report: Report, context: Context) -> Budget:
    """Return the budget that a nested run leaves for the runs below it.

    The members and bytes of its plan are subtracted, not those of its outcomes. So a repeated run
    leaves the same budget, and the runs below it have the same options and ids.
    """
    archives = max(0, budget.archives - 1)
    plan = RunRecords.open(context.stores, report.run).find_plan()
    if plan is None:  # the archive was refused
        return replace(budget, archives=archives)
    return Budget(
        archives, max(0, budget.members - plan.selected), max(0, budget.size - plan.bytes_out)
    )


def find_nested(run: Run, context: Context, limit: int) -> tuple[list[Outcome], list[NestedRun]]:
    """Return the nested archives to extract, and the refused ones with their reasons.

    Args:
        run: the run that extracted them.
        context: of the step.
        limit: the maximum number of archives that are considered, the first ones of the directory.
            It bounds the memory.
    """
    records = RunRecords.open(context.stores, run.id)
    by_prefix: dict[str, list[Outcome]] = {}
    refused: list[NestedRun] = []

    def refuse(outcome: Outcome, message: str, reason: str) -> None:
        refused.append(NestedRun(outcome.key, reason=reason, message=message))

    candidates = (
        outcome
        for outcome in records.outcome_lines()
        if outcome.status is not Status.FAILED and outcome.key.lower().endswith(SUFFIX)
    )
    # Outcomes are in the order in which PUTs ended, so they are ordered by their index, which is
    # the same in each run. One more than the limit shows that there are too many.
    archives = nsmallest(limit + 1, candidates, key=attrgetter("index"))
    for outcome in archives[:limit]:
        # A name such as ".zip" or "..zip" leaves no valid folder name.
        if outcome.key.rpartition("/")[2][: -len(SUFFIX)].strip("."):
            by_prefix.setdefault(_nested_prefix(outcome.key), []).append(outcome)
        else:
            message = "its members have no prefix: nothing is left of its name without .zip"
            refuse(outcome, message, reason="nested-no-stem")
    for outcome in archives[limit:]:
        refuse(outcome, f"the budget of {limit} nested archives is spent", reason="nested-budget")
    taken = _find_taken(records, by_prefix)
    calls = context.calls()
    destination = context.stores.destination(run.destination)
    accepted: list[Outcome] = []
    for prefix, outcomes in by_prefix.items():
        conflict = _explain_taken(prefix, len(outcomes), taken)
        if conflict is not None:
            for outcome in outcomes:
                refuse(outcome, conflict, reason="nested-prefix-taken")
        elif is_same_object(outcomes[0], run.options, destination, calls):
            accepted += outcomes
        else:
            message = "the object was replaced after it was extracted"
            refuse(outcomes[0], message, reason="nested-changed")
    return accepted, refused


def _explain_taken(prefix: str, archives: int, taken: Mapping[str, bool]) -> str | None:
    """Return why the members of nested archives cannot go below a prefix; None: they can.

    Args:
        prefix: the prefix of the members' keys.
        archives: how many nested archives have this prefix.
        taken: the result of `_find_taken`.
    """
    if archives > 1:
        return f"{archives} archives would be extracted to {prefix}"
    if prefix not in taken:
        return None
    if taken[prefix]:
        return f"a member of the outer archive is called {prefix.rstrip('/')}"
    return f"members of the outer archive are below {prefix}"


def _nested_prefix(key: str) -> str:
    return key[: -len(SUFFIX)] + "/"


def nested_request(run: Run, key: str, budget: Budget) -> Request:
    """Return the request that extracts a nested archive.

    Args:
        run: the run that extracted the archive. Its password and rules apply to the archive. Its
            filters and its key template do not.
        key: of the archive, at the destination of `run`.
        budget: for the archive and those inside it.
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
    """Yield the requests for the nested archives of a run that ended, and record the refused ones.

    The runs of the archives may be concurrent: each gets an equal share of the budget, so they need
    no communication.
    """
    budget = first_budget(context.tuning)
    own_budget = run.options.nested_budget
    if own_budget is not None:  # the run is nested; its archive was already subtracted from a share
        budget = replace(spend(own_budget, report, context), archives=own_budget.archives)
    archives, refused = find_nested(run, context, budget.archives)
    RunRecords.open(context.stores, run.id).write_nested(refused)
    runs = max(1, len(archives))  # 1 avoids a division by zero
    share = Budget(
        (budget.archives - len(archives)) // runs,  # these archives are spent
        budget.members // runs,
        budget.size // runs,
    )
    for outcome in archives:
        yield nested_request(run, outcome.key, share)


def _find_taken(records: RunRecords, prefixes: Collection[str]) -> dict[str, bool]:
    """Return the prefixes that members of the outer archive use.

    The value is True if the prefix without its slash is the key of a member, and False if members
    lie below the prefix.
    """
    taken: dict[str, bool] = {}
    if not prefixes:  # do not read the records
        return taken
    for outcome in records.outcome_lines():
        key = outcome.key
        if key + "/" in prefixes:
            taken[key + "/"] = True
        at = key.find("/")  # each slash ends a prefix of the key
        while at >= 0:
            if key[: at + 1] in prefixes:
                taken.setdefault(key[: at + 1], False)
            at = key.find("/", at + 1)
    return taken
