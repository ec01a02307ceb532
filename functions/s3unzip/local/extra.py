"""Deletes objects below a run's prefix that are no members of its archive: ``--delete-extra``.

Only a run that wrote all members deletes, and only below a prefix that belongs to its archive
alone. The caller is asked before the first object goes.
"""

import os
from collections.abc import Callable, Sequence
from functools import partial

from msgspec.structs import replace

from s3unzip.context import Context
from s3unzip.errors import ServiceFaultError, UsageError
from s3unzip.local.locking import known_runs
from s3unzip.model import Location, Report, Request, Verdict
from s3unzip.planning.select import MARKER, parse_template
from s3unzip.runs.records import RunRecords
from s3unzip.settling.verdicts import amend_report
from s3unzip.stores import Stores
from s3unzip.stores.listing import PAGE_KEYS, list_pages
from s3unzip.stores.ports import ListedObject

OPTION = "--delete-extra"


def check_extra(request: Request, home: Location, stores: Stores) -> None:
    """Refuse a request of which it is not certain what is extra; `home` has this machine's runs.

    `UsageError`: not all members are extracted; the prefix is none, or holds the archive, the
    records of runs or what another archive's run wrote.
    """
    options = request.options
    if options.include or options.exclude or options.names or options.limit is not None:
        raise UsageError(
            f"{OPTION}: leave out --include, --exclude, --member and --limit, because members that "
            "are not selected would be deleted"
        )
    if options.nested_depth:
        raise UsageError(
            f"{OPTION}: leave out --nested, because members of archives inside would be deleted"
        )
    target, prefix = request.destination, parse_template(request).prefix
    if not prefix or (target.store.has_folders and prefix == target.key):
        what = "folder" if target.store.has_folders else "bucket"
        raise UsageError(
            f"{OPTION}: would delete in the whole {what} {target}; extract below it, for example "
            "with --prefix NAME"
        )
    if not prefix.endswith("/"):
        raise UsageError(
            f"{OPTION}: the keys begin with {prefix!r}, which may be the beginning of other keys, "
            "too; end the prefix with a slash"
        )
    below = Location(target.scheme, target.bucket, prefix)
    for what, place in {"the archive": request.source, "the records of runs": home}.items():
        if _is_below(place, below):
            raise UsageError(f"{OPTION}: {what} ({place}) is below {prefix}")
    _check_others(request, below, home, stores)


def clear_extra(
    report: Report, context: Context, confirm: Callable[[Sequence[ListedObject]], bool]
) -> Report:
    """Delete what is extra below the prefix of a completed run; return its report.

    Args:
        report: of the run. If it is not COMPLETED, nothing is listed and nothing deleted.
        context: of this process; its requests are counted in the report.
        confirm: gets what would be deleted, in the order of the keys; nothing is deleted unless
            it returns True. It is not called if nothing is extra.
    """
    if report.verdict is not Verdict.COMPLETED:
        return report
    calls = context.calls()
    records = RunRecords.open(context.stores, report.run, calls)
    run = records.read_plan().run
    members = {outcome.key for outcome in records.outcome_lines()}
    if len(members) != report.extracted + report.unchanged:
        raise ServiceFaultError(f"{OPTION}: the records of {run.id} do not have all members")
    if run.options.marker:
        members.add(run.key_prefix + MARKER)
    destination, first = context.stores.destination(run.destination), run.key_prefix
    pages = list_pages(destination, first, partial(calls.paced, "list"))
    listed = {one.key: one for page in pages for one in page.objects if one.key not in members}
    extra = [listed[key] for key in sorted(listed)]
    if extra and confirm(extra):
        for start in range(0, len(extra), PAGE_KEYS):
            keys = [one.key for one in extra[start : start + PAGE_KEYS]]
            calls.run("delete", partial(destination.delete, keys))

    def add_requests(recorded: Report) -> Report:
        return replace(recorded, requests=recorded.requests + calls.requests)

    return amend_report(report, add_requests, records)


def _is_below(place: Location, above: Location) -> bool:
    """Return whether `place` is below `above`; of files, whatever links lead there."""
    if (place.scheme, place.bucket) != (above.scheme, above.bucket):
        return False
    if not place.store.is_local:
        return place.key.startswith(above.key)
    return (os.path.realpath(place.key) + "/").startswith(os.path.realpath(above.key) + "/")


def _check_others(request: Request, below: Location, home: Location, stores: Stores) -> None:
    """Check that no run of another archive wrote there, as far as this machine knows."""
    for name in known_runs(home):
        plan = RunRecords.open(stores, name).find_plan()
        if plan is None or plan.run.source.public == request.source.public:
            continue
        there, prefix = plan.run.destination, plan.run.key_prefix
        same_place = (there.scheme, there.bucket) == (below.scheme, below.bucket)
        if same_place and (prefix.startswith(below.key) or below.key.startswith(prefix)):
            raise UsageError(
                f"{OPTION}: the run {name} extracted another archive, {plan.run.source}, to "
                f"{prefix}; give each archive a prefix of its own"
            )
