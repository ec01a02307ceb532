"""Archives inside archives: each has a separate run after the run that extracted it.

A member counts as an archive if its name ends in ``.zip`` and its directory can be read; the plan
of its run checks the latter. The members of such an archive go below its key without the ``.zip``.
The caller chooses the depth (`Options.nested_depth`). All runs below one archive share a `Budget`,
so an archive cannot cause more runs or more data than the settings allow. Other modules start the
runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from s3unzip.model import Budget, Location, NestedRun, Options, Request, Status, Verdict
from s3unzip.objects.existing import is_same_object
from s3unzip.runs.records import RunRecords

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from s3unzip.context import Context
    from s3unzip.model import Outcome, Report, Run
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
    """Return the rest of `budget` after a nested run, which counts by its plan."""
    summary = RunRecords.open(context.stores, report.run).find_summary()
    members = summary.selected if summary is not None else 0  # a rejected archive has none
    size = summary.bytes_out if summary is not None else 0
    return Budget(
        max(0, budget.archives - 1),
        max(0, budget.members - members),
        max(0, budget.size - size),
    )


def find_nested(run: Run, context: Context, limit: int) -> tuple[list[Outcome], list[NestedRun]]:
    """Return the nested archives to extract, and the refused ones with their reasons.

    `limit` is the maximum number of archives to consider; it bounds the memory.
    """
    records = RunRecords.open(context.stores, run.id)
    found: dict[str, Outcome] = {}
    refused: list[NestedRun] = []
    for outcome in _archives(records, run.key_prefix):
        if len(found) < limit:
            found[nested_prefix(outcome.key)] = outcome
            continue
        message = f"the budget of {limit} nested archives is spent"
        refused.append(NestedRun(outcome.key, reason="nested-budget", message=message))
        break
    for prefix in _taken(records, run.key_prefix, found):
        key = found.pop(prefix).key
        message = f"members of the outer archive are below {prefix}"
        refused.append(NestedRun(key, reason="nested-prefix-taken", message=message))
    destination = context.stores.destination(run.destination)
    calls = context.calls()
    for prefix, outcome in list(found.items()):
        if not is_same_object(outcome, destination, calls):
            del found[prefix]
            message = "the object was replaced after it was extracted"
            refused.append(NestedRun(outcome.key, reason="nested-changed", message=message))
    return list(found.values()), refused


def nested_prefix(key: str) -> str:
    """Return the prefix of the keys of a nested archive's members."""
    return key[: -len(SUFFIX)] + "/"


def nested_request(run: Run, key: str, budget: Budget) -> Request:
    """Return the request to extract the nested archive `key` within `budget`.

    Filters and key templates of the outer archive do not apply to the nested archive; the password
    and the rules do.
    """
    where = run.destination
    options = run.options
    return Request(
        source=Location(where.scheme, where.bucket, key),
        destination=Location(where.scheme, where.bucket, nested_prefix(key)),
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
    found, refused = find_nested(run, context, budget.archives)
    record_nested(run, context, refused)
    share = Budget(
        (budget.archives - len(found)) // max(1, len(found)),
        budget.members // max(1, len(found)),
        budget.size // max(1, len(found)),
    )
    for outcome in found:
        yield nested_request(run, outcome.key, share)


def record_nested(run: Run, context: Context, nested: Iterable[NestedRun]) -> None:
    """Record the results of the nested archives of a run."""
    known = list(nested)
    if known:
        RunRecords.open(context.stores, run.id).write_nested(known)


def _archives(records: RunRecords, key_prefix: str) -> Iterator[Outcome]:
    """Yield the outcomes of members that have the name of an archive and may exist."""
    for outcome in every_outcome(records, key_prefix):
        if outcome.status is not Status.FAILED and outcome.key.lower().endswith(SUFFIX):
            yield outcome


def every_outcome(records: RunRecords, key_prefix: str) -> Iterator[Outcome]:
    """Yield the outcome of every member; of a split member as if it were complete."""
    for _, outcome in records.each_outcome():
        yield outcome
    for task in records.split_tasks():
        yield records.read_rows(task.rows, key_prefix)[0].outcome(Status.EXTRACTED)


def _taken(records: RunRecords, key_prefix: str, prefixes: Iterable[str]) -> set[str]:
    """Return the `prefixes` that other members of the run are below, in one pass."""
    wanted = set(prefixes)
    taken: set[str] = set()
    if not wanted:
        return taken
    for outcome in every_outcome(records, key_prefix):
        at = outcome.key.find("/")
        while at >= 0:
            folder = outcome.key[: at + 1]
            if folder in wanted:
                taken.add(folder)
            at = outcome.key.find("/", at + 1)
    return taken
