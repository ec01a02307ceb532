"""The command ``run``: extract one or more archives on this machine.

Several archives are extracted one after another; then a table of their verdicts is printed.
"""

import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from s3unzip.api.options import open_context
from s3unzip.cli.arguments import Arguments, hint_at_prefix_if_missing
from s3unzip.cli.commands import (
    AFTER_RUN_OPTIONS,
    ARCHIVE_OPTIONS,
    KEY_OPTIONS,
    MEMBER_OPTIONS,
    OBJECT_OPTIONS,
    STORE_OPTIONS,
    command,
)
from s3unzip.cli.output import (
    RunOutput,
    describe_nested,
    exit_code,
    print_failures,
    print_problem,
    shown_connections,
)
from s3unzip.cli.progress import Figures, RunDisplay
from s3unzip.cli.terminal import print_json, warn, write_table
from s3unzip.errors import (
    ConflictError,
    InterruptedRunError,
    NotFoundError,
    S3UnzipError,
    UsageError,
)
from s3unzip.model import ArchiveEnd, Batch, NestedRun, PlanSummary, Request, SourceState
from s3unzip.printable import choose_form, printable, printable_name, show_bytes, show_count
from s3unzip.settling.next_command import next_command
from s3unzip.stores.config import (
    StoreConfig,
    absolute_path,
    parse_destination,
    parse_location,
)

if TYPE_CHECKING:
    from s3unzip.local.machine import Machine

ARCHIVE_COLUMNS = ("STATE", "MEMBERS", "FAILED", "RUN", "SOURCE")


@command(
    f"sources dest workers {MEMBER_OPTIONS} {KEY_OPTIONS} {OBJECT_OPTIONS} {ARCHIVE_OPTIONS}"
    f" {STORE_OPTIONS} kms_key {AFTER_RUN_OPTIONS} dry_run quiet json",
    dest={"required": False, "default": ""},
)
def run(arguments: Arguments) -> int:
    """Extract one or more archives on this machine.

    SRC is an archive, a folder, a prefix (s3://bucket/in/) or a glob; several may be given.
    For several archives, the exit code is the highest of their codes.

    Exit code: 0 all extracted, 1 some members failed or extra objects remain, 2 invalid request,
    3 archive rejected, 4 archive changed, 5 a service failed (s3unzip resume continues),
    6 a store refused a request, 7 no member selected, 74 stdout cannot be written,
    130 stopped (143 by SIGTERM, 129 by SIGHUP).
    """
    # These modules are slow to import, and the help does not need them.
    from s3unzip.api.extraction import names_one, open_sources

    _require_destination(arguments)
    stores = arguments.config()
    is_one = len(arguments.sources) == 1 and names_one(arguments.sources[0], open_sources(stores))
    if arguments.delete_extra and not is_one:
        raise UsageError("--delete-extra: is for one archive; run them one by one")
    requests = _make_requests(arguments, stores)
    if arguments.dry_run:
        password = arguments.password()  # only once, because the user may be asked
        if is_one:
            return _list_decisions(requests[0], arguments, stores, password)
        return max(_list_or_report(request, arguments, stores, password) for request in requests)
    if is_one:
        return _extract_one(requests[0], arguments, stores)
    return _extract_several(requests, arguments, stores)


def _require_destination(arguments: Arguments) -> None:
    """Refuse arguments that do not end with a destination."""
    if not arguments.sources:  # click treats a single argument as DEST
        if not arguments.dest:
            raise UsageError(
                "give an archive, and where its members go: s3unzip run SRC DEST (see s3unzip run "
                "--help)"
            )
        raise UsageError("Missing argument 'DEST' (see s3unzip run --help)")
    if Path(arguments.dest).is_file():
        raise ConflictError(
            f"{absolute_path(arguments.dest)}: a file is where a folder is needed: the last "
            "argument is DEST"
        )


def _make_requests(arguments: Arguments, stores: StoreConfig) -> list[Request]:
    """Check the arguments; return a request for each archive that they name."""
    from s3unzip.api.extraction import check_prefixes_differ, find_archives, make_request

    destination = parse_destination(arguments.dest)
    for word in arguments.sources:
        arguments.check_locations(parse_location(word), destination)
    options = arguments.options()  # before the listing, so that a mistake costs no requests
    try:
        sources = find_archives(arguments.sources, stores)
    except NotFoundError as error:
        if len(arguments.sources) == 1:
            raise
        # The user may have put a member's name where DEST belongs, so the error says which argument
        # is DEST.
        raise NotFoundError(
            f"{error}. The last argument is DEST, here {arguments.dest}; --member NAME extracts "
            "only some members"
        ) from None
    requests = [
        make_request(source, destination, options, arguments.after_success) for source in sources
    ]
    check_prefixes_differ(requests)
    return requests


def _extract_one(request: Request, arguments: Arguments, stores: StoreConfig) -> int:
    from s3unzip.api.extraction import extract_one
    from s3unzip.local.destination_objects import check_safe_to_delete

    output = RunOutput(
        quiet=arguments.quiet,
        json=arguments.json,
        connections=shown_connections(stores, request.source, request.destination),
        max_deleted=arguments.delete_extra or 0,
    )
    confirm_deletion = None  # without --delete-extra, nothing is deleted
    with (
        output,
        hint_at_prefix_if_missing(request.source),
        arguments.open_machine(request, stores, arguments.password(), output) as machine,
    ):
        if arguments.delete_extra is not None:
            check_safe_to_delete(request, stores.work, machine.context.stores)
            confirm_deletion = output.confirm_deletion
        report, nested = extract_one(machine, request, warn, confirm=confirm_deletion)
    # The exit code is 1 if the archive is extracted, but extra objects are kept.
    return exit_code(report, nested) or int(bool(output.objection))


def _list_decisions(
    request: Request, arguments: Arguments, stores: StoreConfig, password: bytes | None
) -> int:
    """Print what a run would do with each member; return 1 if it could not write all of them."""
    from s3unzip.local.destination_objects import check_safe_to_delete, preview_run

    deletes = arguments.delete_extra is not None
    context = open_context(request.options, stores, password, request.destination)
    if deletes:
        check_safe_to_delete(request, stores.work, context.stores)
    counts = Counter[str]()
    with hint_at_prefix_if_missing(request.source):
        for decision in preview_run(request, context, warn, delete_extra=deletes):
            counts[decision.action] += 1
            if arguments.json:
                print_json(decision)
                continue
            detail = ""
            if decision.message:
                detail = f"  {printable(decision.message)} ({decision.reason})"
            sys.stdout.write(
                f"{decision.action:9}  {decision.size:12,}  "
                f"{printable_name(decision.key)}{detail}\n"
            )
    totals = ", ".join(f"{count:,} {action}" for action, count in counts.items())
    sys.stderr.write(f"dry run; nothing is written: {totals or 'no members'}\n")
    return int(counts["fail"] > 0 or counts["refuse"] > 0)


def _list_or_report(
    request: Request, arguments: Arguments, stores: StoreConfig, password: bytes | None
) -> int:
    """Call `_list_decisions`; if the archive cannot be read, print why. Return an exit code."""
    try:
        return _list_decisions(request, arguments, stores, password)
    except S3UnzipError as error:
        sys.stderr.write(f"{printable(_error_line(str(request.source.public), str(error)))}\n")
        return error.exit_code


class _BatchDisplay(RunDisplay):
    """Shows how many archives are finished, and the counts of the members of all archives."""

    def __init__(self, archives: int, *, quiet: bool) -> None:
        super().__init__(quiet=quiet)
        self._archives = archives
        self.ends: list[ArchiveEnd] = []

    def phase(self, name: str) -> None:  # noqa: ARG002 - the phase of a single archive
        self._start_display()  # later calls have no effect

    def planned(self, plan: PlanSummary, elapsed: float = 0.0) -> None:
        """Do not reset the counts, because they are totals over all archives."""

    def nested(self, run: NestedRun) -> None:
        if run.is_failure:
            self.print_line(describe_nested(run))

    def ended(self, end: ArchiveEnd) -> None:
        self.ends.append(end)
        if end.error is not None:
            self.print_line(_error_line(end.source, end.error))
        elif self._quiet and end.report is not None:  # if not quiet, the table shows the report
            print_problem(end.report)

    def figures(self) -> Figures:
        with self._lock:
            counts = Counter(self.counts)
        seconds = max(time.monotonic() - self._phase_start, 1e-3)  # all archives form one phase
        done = counts["extracted"] + counts["unchanged"] + counts["failed"]
        size = counts["bytes_written"]
        return Figures(
            f"{len(self.ends):,}/{self._archives:,} archives",
            len(self.ends) / self._archives,
            members=show_count(done, "member"),
            failed=f"{counts['failed']:,} failed",
            size=show_bytes(size),
            rate=f"{done / seconds:,.0f} members/s, {show_bytes(size / seconds)}/s",
        )


def _extract_several(requests: Sequence[Request], arguments: Arguments, stores: StoreConfig) -> int:
    """Extract several archives, one after another; return the highest exit code."""
    with (
        _BatchDisplay(len(requests), quiet=arguments.quiet) as display,
        # All requests have the same options and destination.
        arguments.open_machine(requests[0], stores, arguments.password(), display) as machine,
    ):
        for request in requests:
            try:
                display.ended(_extract_next(machine, request))
            except (InterruptedRunError, KeyboardInterrupt) as interrupt:
                raise _interrupted(len(display.ends), len(requests), interrupt) from interrupt
    batch = Batch(max(end.exit_code for end in display.ends), tuple(display.ends))
    for end in batch.archives:
        for text in end.warnings:
            warn(f"{end.source}: {text}")
    if arguments.json:
        print_json(batch)
    if not arguments.quiet:
        _print_batch(batch.archives, stores)
    return batch.exit_code


def _extract_next(machine: "Machine", request: Request) -> ArchiveEnd:
    """Extract an archive; return an error in the result, so that the batch can continue."""
    from s3unzip.api.extraction import extract_one

    warnings: list[str] = []
    # JSON cannot contain the surrogates that stand for undecodable bytes of a file name.
    source = str(request.source.public).encode(errors="backslashreplace").decode()
    try:
        report, nested = extract_one(machine, request, warnings.append)
    except InterruptedRunError:  # ends the batch, unlike all other errors
        raise
    except S3UnzipError as error:
        return ArchiveEnd(source, error.exit_code, error=str(error))
    return ArchiveEnd(
        source,
        exit_code(report, nested),
        report,
        nested=tuple(nested),
        warnings=tuple(warnings),
    )


def _interrupted(ended: int, archives: int, interrupt: BaseException) -> InterruptedRunError:
    message = f"stopped: {ended:,} of {show_count(archives, 'archive')} finished"
    not_begun = archives - ended
    if isinstance(interrupt, InterruptedRunError):  # the run of the next archive had begun
        message += f"; next archive: {interrupt}"
        not_begun -= 1
    if not_begun > 0:
        message += f"; {show_count(not_begun, 'archive')} not started: run the same command again"
    return InterruptedRunError(message)


def _print_batch(archives: Sequence[ArchiveEnd], stores: StoreConfig) -> None:
    """Print a table of the archives, their failures and next commands, and the totals."""
    write_table([ARCHIVE_COLUMNS, *map(_cells, archives)], sys.stderr)
    reports = [end.report for end in archives if end.report is not None]
    for report in reports:
        command = next_command(
            report, connections=shown_connections(stores, report.source, report.destination)
        )
        is_archive_kept = (
            report.after_success is not None and report.after_success.state is not SourceState.DONE
        )
        if report.failed or command or is_archive_kept:
            sys.stderr.write(f"{printable(str(report.source))}\n")
            print_failures(report, sys.stderr, env_options="")
        if is_archive_kept:
            sys.stderr.write(f"  {printable(str(report.after_success))}\n")
        if command:
            sys.stderr.write(f"  next: {printable(command)}\n")
    extracted = sum(end.exit_code == 0 for end in archives)
    members = sum(report.extracted + report.unchanged for report in reports)
    size = sum(report.bytes_out for report in reports)
    failed = sum(report.failed + report.missing for report in reports)
    sys.stderr.write(
        f"{extracted:,} of {show_count(len(archives), 'archive')} "
        f"{choose_form(len(archives), 'is', 'are')} extracted: {show_count(members, 'member')}, "
        f"{show_bytes(size)}; {show_count(failed, 'member')} failed\n"
    )


def _error_line(source: str, error: str) -> str:
    """Return an archive's error as a line that begins with the archive's name."""
    if error.startswith(f"{source}:"):
        return error
    return f"{source}: {error}"


def _cells(end: ArchiveEnd) -> tuple[str, ...]:
    """Return the cells for `ARCHIVE_COLUMNS`; for an archive without a report, show its error."""
    report = end.report
    if report is None:
        return ("ERROR", "", "", "", printable(_error_line(end.source, end.error or "")))
    source = printable(end.source)
    if report.message:
        source += f": {printable(report.message)}"
    return (
        report.verdict.value,
        f"{report.members:,}",
        f"{report.failed + report.missing:,}",
        report.run,
        source,
    )
