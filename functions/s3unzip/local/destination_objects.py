"""What a run does to the objects in its destination: ``--dry-run``, folders, ``--delete-extra``.

Before its first write, a run checks that the destination can store the members. A dry run
determines what a run would do with each key, but writes nothing. After a run into a folder, the
folders of the archive are created.

Objects below the run's prefix that are not members of its archive are extra. Extra objects are
deleted only by a run that wrote all members, and only below a prefix that belongs to its archive
alone. The caller must confirm the deletion before it begins.
"""

import logging
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from stat import S_ISDIR

from msgspec import Struct
from msgspec.structs import replace

from s3unzip.context import Context
from s3unzip.contradictions import Naming, check_delete_extra, check_options, name_typed
from s3unzip.errors import (
    S3UnzipError,
    ServiceFaultError,
    StorageError,
    UnreadableRecordError,
    UsageError,
)
from s3unzip.explanations import describe
from s3unzip.extraction.existing_objects import resolve_conflicts
from s3unzip.local.runs import known_runs
from s3unzip.model import (
    Location,
    OnConflict,
    PlannedMember,
    Report,
    Request,
    Run,
    SourceAction,
    Status,
    Verdict,
)
from s3unzip.planning.reading import Reading, read_archive
from s3unzip.planning.select import MARKER, check_selection, parse_template
from s3unzip.runs.records import RunRecords
from s3unzip.settling.report import amend_report
from s3unzip.stores import Stores
from s3unzip.stores.calls import Calls
from s3unzip.stores.folder import FolderDestination
from s3unzip.stores.listing import PAGE_KEYS, list_pages
from s3unzip.stores.ports import StoredObject

_log = logging.getLogger("s3unzip.machine")

OPTION = "--delete-extra"
MAX_SHOWN = 3  # maximum number of folders to name in a warning


def check_destination(request: Request, reading: Reading, context: Context) -> None:
    """Raise an error if the destination cannot be reached or cannot store the members."""
    destination = context.stores.destination(request.destination)
    destination.check_reachable()
    size = reading.index.selected.size
    if request.options.as_gzip is not None:  # a gzip file is about as large as the compressed data
        size = reading.index.selected.compressed_size
    rule = request.after_success
    # `check_ready` raises an error for warnings about names that refer to one file on the disk.
    # Without these warnings, the last member with such a name replaces the others. Only a lenient
    # run may lose members in this way, and only if the run does not delete the archive afterwards.
    keeps_last = request.options.lenient and (rule is None or rule.action is SourceAction.TAG)
    destination.check_ready(size, {} if keeps_last else reading.index.warnings)


class Decision(Struct, frozen=True, omit_defaults=True):
    """What a run does with one object: a line of the output of ``s3unzip run --dry-run --json``."""

    key: str
    size: int  # uncompressed bytes
    action: str  # write, overwrite, unchanged, refuse, fail or delete
    reason: str | None = None  # reason code if the action is refuse or fail
    message: str | None = None


def preview_run(
    request: Request,
    context: Context,
    warn: Callable[[str], object],
    *,
    delete_extra: bool,
) -> Iterator[Decision]:
    """Yield what a run of `request` would do with each key; nothing is written.

    Args:
        request: archive, destination and options.
        context: the context of this process.
        warn: called with a sentence for each glob that matches no member.
        delete_extra: whether to also yield the extra objects to delete. No extra object is yielded
            if a member fails or is refused.
    """
    check_options(request.options, request.destination)
    calls = context.calls()
    reading = read_archive(request, context, calls)
    check_selection(request.options, reading.index, warn)
    key_of = reading.template.key_of()
    rows = sorted(
        (PlannedMember(member, key_of(member.path)) for member in reading.index.selected),
        key=lambda row: row.key,
    )
    listed = _list_objects(request.destination, reading.template.prefix, context, calls)
    lacks_member = bool(reading.index.failures)  # whether the destination would lack a member
    for decision in _decide_members(rows, listed.keys(), request, context, calls=calls):
        lacks_member |= decision.action in {"refuse", "fail"}
        yield decision
    for member, finding in reading.index.failures:
        yield Decision(
            key_of(member.path.lstrip("/")),  # the name of a refused member may begin with slashes
            member.size,
            "fail",
            reason=finding.code,
            message=describe(finding.code, finding.message),
        )
    if delete_extra and not lacks_member:
        run_keys = {row.key for row in rows}
        if request.options.marker:
            run_keys.add(reading.template.marker)
        for key in sorted(listed.keys() - run_keys):
            yield Decision(key, listed[key].size, "delete")


def _decide_members(
    rows: Sequence[PlannedMember],
    listed_keys: Collection[str],
    request: Request,
    context: Context,
    *,
    calls: Calls,
) -> Iterator[Decision]:
    """Yield the decision for each selected member.

    Args:
        rows: the members, sorted by key.
        listed_keys: the keys of the objects below the run's prefix.
        request: archive, destination and options.
        calls: counts and retries the requests.
    """
    outcomes = resolve_conflicts(
        [row for row in rows if row.key in listed_keys],
        request.options,
        context.stores.destination(request.destination),
        calls,
        threads=context.tuning.puts_in_flight,
    )
    has_folders = request.destination.store.has_folders
    is_linked = cache(partial(_is_linked, root=request.destination.key))
    for row in rows:
        outcome = outcomes.get(row.member.index)
        # An outcome is UNCHANGED, or a refusal because of NEVER, which the second branch handles.
        if outcome is not None and outcome.status is Status.UNCHANGED:
            yield Decision(row.key, row.member.size, "unchanged")
        elif request.options.on_conflict is OnConflict.NEVER and (
            row.key in listed_keys
            # With `never`, folders and symbolic links are also kept, but a listing omits them.
            or (has_folders and os.path.lexists(row.key))
        ):
            yield Decision(row.key, row.member.size, "refuse", reason="exists")
        elif has_folders and (
            is_linked(os.path.dirname(row.key)) or _is_blocked(row.key)  # noqa: PTH120 - faster
        ):
            yield Decision(
                row.key,
                row.member.size,
                "fail",
                reason="store-refused",
                message="a file, a folder or a symbolic link is in the way",
            )
        elif row.key not in listed_keys:
            yield Decision(row.key, row.member.size, "write")
        else:
            yield Decision(row.key, row.member.size, "overwrite")


def _is_linked(folder: str, root: str) -> bool:
    """Return whether `folder`, or a folder between it and the destination `root`, is a link.

    Runs do not follow symbolic links below the destination.
    """
    depth = f"{folder}/".count("/", len(root))  # folders below `root`
    return any(map(Path.is_symlink, Path(folder, "member").parents[:depth]))


def _is_blocked(path: str) -> bool:
    """Return whether `path` is a folder, or a file is in the place of one of its parent folders.

    In both cases, a run cannot write a file at `path`. A file or a symbolic link at `path` does not
    block the run, which replaces it.
    """
    try:
        return S_ISDIR(Path(path).lstat().st_mode)
    except OSError as error:
        return isinstance(error, NotADirectoryError)  # a missing file or folder is no obstacle


def check_safe_to_delete(
    request: Request,
    home: Location,
    stores: Stores,
    option: str = OPTION,
    naming: Naming = name_typed,
) -> None:
    """Refuse a request with ``--delete-extra`` if its run might delete objects still in use.

    Args:
        request: archive, destination and options.
        home: the location of the records of this machine's runs.
        stores: used to read these records.
        option: the caller's name for ``--delete-extra``, used in messages.
        naming: returns the caller's name for any other option, used in messages.

    Raises:
        UsageError: not all members are extracted, the prefix is missing, or the objects below the
            prefix include the archive, the records of runs, or members of another archive.
    """
    check_delete_extra(request.options, option, naming)
    target = request.destination
    prefix = parse_template(request).prefix
    # Without a key prefix, a run would clear the whole bucket, or the whole folder at `target.key`.
    if not prefix or (target.store.has_folders and prefix == target.key):
        container = "folder" if target.store.has_folders else "bucket"
        raise UsageError(
            f"{option}: would delete in the whole {container} {target}; extract below it, for "
            "example with --prefix NAME"
        )
    if not prefix.endswith("/"):
        raise UsageError(
            f"{option}: the keys begin with {prefix!r}, which may be the beginning of other keys, "
            "too; end the prefix with a slash"
        )
    cleared = Location(target.scheme, target.bucket, prefix)
    for name, location in {"the archive": request.source, "the records of runs": home}.items():
        if _is_within(location, cleared):
            raise UsageError(f"{option}: {name} ({location}) is below {prefix}")
    _refuse_other_archives(request, cleared, home, stores, option=option)


def clear_extra(
    report: Report, context: Context, confirm: Callable[[Sequence[StoredObject]], bool]
) -> Report:
    """Delete the extra objects below the prefix of a completed run; return its report.

    Args:
        report: the report of the run. Nothing is deleted unless the verdict is COMPLETED.
        context: the context of this process. The requests of this call are added to the report.
        confirm: called with the extra objects, sorted by key, if there are any. If `confirm`
            returns False, nothing is deleted.
    """
    if report.verdict is not Verdict.COMPLETED:
        return report
    calls = context.calls()
    records = RunRecords.open(context.stores, report.run, calls)
    run = records.read_plan().run
    members = {outcome.key for outcome in records.all_outcomes()}
    # If a member lacked a record, its object would be deleted as an extra object.
    if len(members) != report.extracted + report.unchanged:
        raise ServiceFaultError(f"{OPTION}: the records of {run.id} lack some of its members")
    if run.options.marker:
        members.add(run.key_prefix + MARKER)
    extra = _find_extra(run, members, context, calls)
    if extra and confirm(extra):
        destination = context.stores.destination(run.destination)
        for start in range(0, len(extra), PAGE_KEYS):
            keys = [listed.key for listed in extra[start : start + PAGE_KEYS]]
            calls.run("delete", partial(destination.delete, keys))  # one request per page of keys
    return amend_report(
        report,
        lambda recorded: replace(recorded, requests=recorded.requests + calls.requests),
        records,
    )


def _find_extra(run: Run, members: set[str], context: Context, calls: Calls) -> list[StoredObject]:
    objects = _list_objects(run.destination, run.key_prefix, context, calls)
    extra = [objects[key] for key in sorted(objects.keys() - members)]
    unlisted = sorted(members - objects.keys())
    if extra and unlisted:  # an object may be listed under a name that differs only in case
        raise StorageError(
            f"{OPTION}: nothing is deleted: the destination does not list {unlisted[0]}, perhaps "
            "because its disk ignores case; rename the file or folder that differs only in case"
        )
    # A run that began after `check_safe_to_delete` may have written these objects. Without
    # `connections`, the other runs are unknown.
    if extra and context.connections is not None:
        _refuse_other_archives(
            run,
            replace(run.destination, key=run.key_prefix),
            context.connections.work,
            context.stores,
            option=OPTION,
        )
    return extra


def make_folders(run: Run, records: RunRecords, context: Context) -> None:
    """Create the archive's folders, even empty ones, if the destination is a folder.

    The members have already been written. If a member has the same name as a folder, the file of
    the member is kept, and a warning is logged.
    """
    destination = context.stores.destination(run.destination)
    if not isinstance(destination, FolderDestination):
        return
    refused: list[str] = []
    try:
        for key in records.folders():
            try:
                destination.make_folder(key)
            except S3UnzipError as error:
                refused.append(str(error))
    except UnreadableRecordError as damage:
        refused.append(str(damage))
    if refused:
        _log.warning("folders not created: %d; %s", len(refused), "; ".join(refused[:MAX_SHOWN]))


def _list_objects(
    location: Location, prefix: str, context: Context, calls: Calls
) -> dict[str, StoredObject]:
    return {
        listed.key: listed
        for page in list_pages(
            context.stores.destination(location), prefix, partial(calls.paced, "list")
        )
        for listed in page.objects
    }


def _is_within(location: Location, outer: Location) -> bool:
    """Return whether `location` is `outer` or lies below it; symbolic links are resolved first."""
    if (location.scheme, location.bucket) != (outer.scheme, outer.bucket):
        return False
    if not location.store.is_local:
        return location.key.startswith(outer.key)  # `outer.key` ends with a slash
    return Path(location.key).resolve().is_relative_to(Path(outer.key).resolve())


def _refuse_other_archives(
    request: Request, cleared: Location, home: Location, stores: Stores, *, option: str
) -> None:
    """Raise an error if the prefix of another archive's run contains `cleared` or lies within it.

    Runs of the archive in `request` are ignored. `cleared` is the prefix whose extra objects are to
    be deleted. The records of the runs are below `home` and are read through `stores`.
    """
    for name in known_runs(home):
        try:
            plan = RunRecords.open(stores, name).find_plan()
        except UnreadableRecordError as damage:  # the run may have written to `cleared`
            raise UnreadableRecordError(
                f"{option} needs the records of all runs to find the extra objects: {damage}; if "
                f"that run is no longer needed, remove {home}runs/{name}/"
            ) from None
        if plan is None or plan.run.source.public == request.source.public:
            continue
        written = replace(plan.run.destination, key=plan.run.key_prefix)
        # The bucket is the same, and one of the two prefixes contains the other.
        if (written.scheme, written.bucket) == (cleared.scheme, cleared.bucket) and (
            written.key.startswith(cleared.key) or cleared.key.startswith(written.key)
        ):
            raise UsageError(
                f"{option}: the run {name} extracted another archive, {plan.run.source}, to "
                f"{written.key}; give each archive a prefix of its own"
            )
