"""Deletes objects below a run's prefix that are not members of its archive: ``--delete-extra``.

Only a run that wrote all members deletes objects, and only below a prefix that belongs to its
archive alone. The caller must confirm before the first object is deleted.
"""

import os
from collections.abc import Callable, Sequence
from functools import partial

from msgspec.structs import replace

from s3unzip.context import Context
from s3unzip.contradictions import check_delete_extra
from s3unzip.errors import ServiceFaultError, UsageError
from s3unzip.local.run_folders import known_runs
from s3unzip.model import Location, Report, Request, Verdict
from s3unzip.planning.select import MARKER, parse_template
from s3unzip.runs.records import RunRecords
from s3unzip.settling.report import amend_report
from s3unzip.stores import Stores
from s3unzip.stores.listing import PAGE_KEYS, list_pages
from s3unzip.stores.ports import ListedObject

OPTION = "--delete-extra"


def check_extra(request: Request, home: Location, stores: Stores) -> None:
    """Refuse a request whose run might delete objects that somebody needs.

    Args:
        request: archive, destination and options.
        home: where the records of this machine's runs are.
        stores: read these records.

    Raises:
        UsageError: not all members are extracted. Or the prefix is missing, or objects below it
            are the archive, the records of runs, or members of another archive.
    """
    check_delete_extra(request.options, OPTION)
    target = request.destination
    prefix = parse_template(request).prefix
    # Without a key prefix of its own, the run would clear a whole bucket or folder.
    if not prefix or (target.store.has_folders and prefix == target.key):
        container = "folder" if target.store.has_folders else "bucket"
        raise UsageError(
            f"{OPTION}: would delete in the whole {container} {target}; extract below it, for "
            "example with --prefix NAME"
        )
    if not prefix.endswith("/"):
        raise UsageError(
            f"{OPTION}: the keys begin with {prefix!r}, which may be the beginning of other keys, "
            "too; end the prefix with a slash"
        )
    cleared = Location(target.scheme, target.bucket, prefix)
    for name, location in {"the archive": request.source, "the records of runs": home}.items():
        if _is_below(location, cleared):
            raise UsageError(f"{OPTION}: {name} ({location}) is below {prefix}")
    _check_runs(request, cleared, home, stores)


def clear_extra(
    report: Report, context: Context, confirm: Callable[[Sequence[ListedObject]], bool]
) -> Report:
    """Delete the extra objects below the prefix of a completed run; return its report.

    Args:
        report: of the run. If it is not COMPLETED, nothing is listed or deleted.
        context: the context of this process; the requests are added to the report.
        confirm: called with the extra objects, in the order of the keys; nothing is deleted unless
            it returns True. It is not called if there are none.
    """
    if report.verdict is not Verdict.COMPLETED:
        return report
    calls = context.calls()
    records = RunRecords.open(context.stores, report.run, calls)
    run = records.read_plan().run
    members = {outcome.key for outcome in records.outcome_lines()}
    if len(members) != report.extracted + report.unchanged:  # a member might be deleted as extra
        raise ServiceFaultError(f"{OPTION}: the records of {run.id} do not have all members")
    if run.options.marker:
        members.add(run.key_prefix + MARKER)
    destination = context.stores.destination(run.destination)
    pages = list_pages(destination, run.key_prefix, partial(calls.paced, "list"))
    objects = {listed.key: listed for page in pages for listed in page.objects}
    extra = [objects[key] for key in sorted(objects.keys() - members)]
    if extra and confirm(extra):
        for start in range(0, len(extra), PAGE_KEYS):
            keys = [listed.key for listed in extra[start : start + PAGE_KEYS]]
            calls.run("delete", partial(destination.delete, keys))  # one request for each page

    def add_requests(recorded: Report) -> Report:
        return replace(recorded, requests=recorded.requests + calls.requests)

    return amend_report(report, add_requests, records)


def _is_below(location: Location, above: Location) -> bool:
    """Return whether `location` is below `above`; links to files and folders are resolved."""
    if (location.scheme, location.bucket) != (above.scheme, above.bucket):
        return False
    if not location.store.is_local:
        return location.key.startswith(above.key)
    return (os.path.realpath(location.key) + "/").startswith(os.path.realpath(above.key) + "/")


def _check_runs(request: Request, cleared: Location, home: Location, stores: Stores) -> None:
    """Refuse if a recorded run of another archive wrote to `cleared`, above it or below it."""
    for name in known_runs(home):
        plan = RunRecords.open(stores, name).find_plan()
        if plan is None or plan.run.source.public == request.source.public:
            continue
        destination = plan.run.destination
        prefix = plan.run.key_prefix
        # One of the two prefixes is below the other.
        if (destination.scheme, destination.bucket) == (cleared.scheme, cleared.bucket) and (
            prefix.startswith(cleared.key) or cleared.key.startswith(prefix)
        ):
            raise UsageError(
                f"{OPTION}: the run {name} extracted another archive, {plan.run.source}, to "
                f"{prefix}; give each archive a prefix of its own"
            )
