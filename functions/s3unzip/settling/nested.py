"""Archives inside an archive: which are extracted, below which prefix, within which budget.

Each archive inside an archive has a separate run after the run that extracted it. A member counts
as an archive if its name ends in ``.zip`` and its directory can be read; the plan of its run checks
the latter. The members of such an archive go below its key without the ``.zip``. The caller chooses
the depth (`Options.nested_depth`). All runs below one archive share a `Budget`, so it cannot cause
more runs or more data than the settings allow. Other modules start the runs.
"""

from collections.abc import Collection, Iterator, Mapping
from heapq import nsmallest
from operator import attrgetter

from msgspec.structs import replace

from s3unzip.context import Context
from s3unzip.extraction.existing_objects import is_same_object
from s3unzip.model import (
    Budget,
    Location,
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
    """Return whether to look for nested archives of a settled run."""
    return report.options.nested_depth > 0 and report.verdict in EXTRACTED


def first_budget(tuning: Tuning) -> Budget:
    """Return the budget that all runs below one archive share."""
    return Budget(tuning.nested_archives, tuning.nested_members, tuning.nested_bytes)


def spend(budget: Budget, report: Report, context: Context) -> Budget:
    """Return the rest of `budget` after a nested run, which counts by its plan.

    So the runs below have the same options, and the same ids, when the run is repeated.
    """
    plan = RunRecords.open(context.stores, report.run).find_plan()
    archives = max(0, budget.archives - 1)
    if plan is None:
        return replace(budget, archives=archives)
    members = max(0, budget.members - plan.selected)
    return Budget(archives, members, max(0, budget.size - plan.bytes_out))


def find_nested(run: Run, context: Context, limit: int) -> tuple[list[Outcome], list[NestedRun]]:
    """Return the nested archives to extract, and the refused ones with their reasons.

    `limit` is the maximum number of archives to consider, the first ones of the directory; it
    bounds the memory.
    """
    records = RunRecords.open(context.stores, run.id)
    by_prefix: dict[str, list[Outcome]] = {}
    refused: list[NestedRun] = []

    def refuse(outcome: Outcome, message: str, reason: str) -> None:
        refused.append(NestedRun(outcome.key, reason=reason, message=message))

    # Outcomes are in the order in which PUTs ended: only the index is the same in each run.
    archives = nsmallest(
        limit + 1, filter(_is_archive, records.outcome_lines()), key=attrgetter("index")
    )
    for outcome in archives[:limit]:
        if outcome.key.rpartition("/")[2][: -len(SUFFIX)].strip("."):
            by_prefix.setdefault(nested_prefix(outcome.key), []).append(outcome)
        else:
            message = "its members have no place: nothing is left of its name without .zip"
            refuse(outcome, message, reason="nested-no-stem")
    for outcome in archives[limit:]:
        message = f"the budget of {limit} nested archives is spent"
        refuse(outcome, message, reason="nested-budget")
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
    """Return why the members of `archives` archives cannot go below a prefix; None: they can.

    `taken` is the result of `_find_taken`.
    """
    if archives > 1:
        return f"{archives} archives would be extracted to {prefix}"
    if prefix not in taken:
        return None
    if taken[prefix]:
        return f"a member of the outer archive is called {prefix.rstrip('/')}"
    return f"members of the outer archive are below {prefix}"


def _is_archive(outcome: Outcome) -> bool:
    """Return whether a member is there and has the name of an archive."""
    return outcome.status is not Status.FAILED and outcome.key.lower().endswith(SUFFIX)


def nested_prefix(key: str) -> str:
    """Return the prefix of the keys of a nested archive's members."""
    return key[: -len(SUFFIX)] + "/"


def nested_request(run: Run, key: str, budget: Budget) -> Request:
    """Return the request to extract the nested archive `key` within `budget`.

    The archive lies at the destination of `run`, which extracted it, and its members go beside it.
    The filters and the key template of `run` do not apply to it; its password and rules do.
    """
    destination = run.destination
    options = run.options
    return Request(
        source=Location(destination.scheme, destination.bucket, key),
        destination=Location(destination.scheme, destination.bucket, nested_prefix(key)),
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
    """Yield the requests for all nested archives of a settled run, for concurrent runs.

    The runs share the rest of the budget equally, so they need no communication. ``nested.jsonl``
    records the refused archives.
    """
    if not has_nested(report):
        return
    budget = first_budget(context.tuning)
    if run.options.nested_budget is not None:  # a nested run; its parent counted it
        budget = replace(
            spend(run.options.nested_budget, report, context),
            archives=run.options.nested_budget.archives,
        )
    archives, refused = find_nested(run, context, budget.archives)
    RunRecords.open(context.stores, run.id).write_nested(refused)
    runs = max(1, len(archives))
    share = Budget(
        (budget.archives - len(archives)) // runs,
        budget.members // runs,
        budget.size // runs,
    )
    for outcome in archives:
        yield nested_request(run, outcome.key, share)


def _find_taken(records: RunRecords, prefixes: Collection[str]) -> dict[str, bool]:
    """Return which of `prefixes` members of the outer archive use.

    The value says whether a member has the prefix, without its slash, as its own key; otherwise
    members lie below the prefix.
    """
    taken: dict[str, bool] = {}
    if not prefixes:
        return taken
    for outcome in records.outcome_lines():
        key = outcome.key
        if key + "/" in prefixes:
            taken[key + "/"] = True
        at = key.find("/")
        while at >= 0:
            if key[: at + 1] in prefixes:
                taken.setdefault(key[: at + 1], False)
            at = key.find("/", at + 1)
    return taken
