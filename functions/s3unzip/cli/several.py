"""``run`` of several archives: a run for each of them, and a table of their verdicts."""

import sys
import time
from collections import Counter
from collections.abc import Sequence

from s3unzip.api.extraction import (
    check_apart,
    extract_one,
    find_archives,
    make_request,
    names_several,
)
from s3unzip.api.options import make_policy
from s3unzip.cli.arguments import Arguments
from s3unzip.cli.output import print_failures, shown_connections
from s3unzip.cli.progress import Figures, RunDisplay
from s3unzip.cli.terminal import print_json, warn, write_table
from s3unzip.errors import InterruptedRunError, NotFoundError, S3UnzipError, UsageError
from s3unzip.figures import choose_form, show_bytes, show_count
from s3unzip.local.machine import Machine, open_machine
from s3unzip.model import ArchiveEnd, Batch, Location, NestedRun, PlanSummary, Request
from s3unzip.printable import printable
from s3unzip.settling.next_command import next_command
from s3unzip.stores.config import StoreConfig
from s3unzip.stores.locations import parse_destination, parse_source

ARCHIVE_COLUMNS = ("STATE", "MEMBERS", "FAILED", "RUN", "SOURCE")


class _BatchDisplay(RunDisplay):
    """Shows the number of archives that have ended, and the counts of all their members."""

    def __init__(self, archives: int, *, quiet: bool) -> None:
        super().__init__(quiet=quiet)
        self._archives = archives
        self.ends: list[ArchiveEnd] = []
        self.nested_runs: list[NestedRun] = []  # of the current archive

    def phase(self, name: str) -> None:  # noqa: ARG002 - the phase of a single archive
        self._start()  # with the first phase of the first archive

    def planned(self, plan: PlanSummary, elapsed: float = 0.0) -> None:
        """Show nothing: the counts go on from one archive to the next."""

    def nested(self, run: NestedRun) -> None:
        self.nested_runs.append(run)

    def ended(self, end: ArchiveEnd) -> None:
        self.ends.append(end)
        if end.error is not None:
            self.print_line(_error_line(end))

    def figures(self) -> Figures:
        with self._lock:
            counts = Counter(self.counts)
        seconds = max(time.monotonic() - self._phase_start, 1e-3)
        done = counts["extracted"] + counts["unchanged"] + counts["failed"]
        size = counts["bytes_written"]
        return Figures(
            f"{len(self.ends):,}/{self._archives:,} archives",
            len(self.ends) / self._archives,
            members=f"{done:,} members",
            failed=f"{counts['failed']:,} failed",
            size=show_bytes(size),
            rate=f"{done / seconds:,.0f} members/s, {show_bytes(size / seconds)}/s",
        )


def make_requests(arguments: Arguments, stores: StoreConfig) -> list[Request]:
    """Return the requests for all archives that the arguments name, with all checks made."""
    if arguments.delete_extra:
        raise UsageError("--delete-extra: is for one archive; run them one by one")
    destination = parse_destination(arguments.dest)
    options = arguments.options()
    for word in arguments.sources:
        # For a folder, a prefix or a glob, only the scheme is known before it is listed.
        location = Location("s3" if "://" in word else "file", "", word)
        if not names_several(word):
            location = parse_source(word)
        arguments.check_places(location, destination)
    requests = [
        make_request(source, destination, options, arguments.after_success)
        for source in _find_sources(arguments, stores)
    ]
    check_apart(requests)
    return requests


def extract_several(requests: Sequence[Request], arguments: Arguments, stores: StoreConfig) -> int:
    """Extract several archives, one after the other; return the highest exit code."""
    batch = _extract_all(requests, arguments, stores)
    for end in batch.archives:
        for text in end.warnings:
            warn(f"{end.source}: {text}")
    if arguments.json:
        print_json(batch)
    if not arguments.quiet:
        _print_batch(batch.archives, stores)
    return batch.exit_code


def _find_sources(arguments: Arguments, stores: StoreConfig) -> list[Location]:
    """Return the archives that are named, also by folders, prefixes and globs.

    If one is not found, the last argument may be a member's name, so the error explains DEST.
    """
    is_only_source = len(arguments.sources) == 1  # then `run` has listed it already
    try:
        return find_archives(arguments.sources, stores, is_listed=is_only_source)
    except NotFoundError as error:
        if is_only_source:
            raise
        raise NotFoundError(
            f"{error}. The last argument is DEST, here {arguments.dest}; --member NAME extracts "
            "only some members"
        ) from None


def _extract_all(requests: Sequence[Request], arguments: Arguments, stores: StoreConfig) -> Batch:
    first = requests[0]  # all requests have the same options and destination
    policy = make_policy(first.options, arguments.password(), first.destination)
    with (
        _BatchDisplay(len(requests), quiet=arguments.quiet) as display,
        open_machine(
            stores, policy, arguments.tuning(), processes=arguments.processes, progress=display
        ) as machine,
    ):
        for request in requests:
            try:
                display.ended(_extract_next(machine, request, display))
            except (InterruptedRunError, KeyboardInterrupt) as interrupt:
                raise _interrupted(len(display.ends), len(requests), interrupt) from interrupt
    return Batch(max(end.exit_code for end in display.ends), tuple(display.ends))


def _extract_next(machine: Machine, request: Request, display: _BatchDisplay) -> ArchiveEnd:
    """Extract an archive; an error is in the result, so that the next archive can follow."""
    warnings: list[str] = []
    display.nested_runs = []
    source = str(request.source.public)
    try:
        report = extract_one(machine, request, display, warnings.append)
    except InterruptedRunError:
        raise
    except S3UnzipError as error:
        return ArchiveEnd(source, error.exit_code, error=str(error))
    nested = tuple(display.nested_runs)
    has_failed_nested = not all(run.is_right for run in nested)
    code = report.verdict.exit_code or int(has_failed_nested)
    return ArchiveEnd(source, code, report, nested=nested, warnings=tuple(warnings))


def _interrupted(ended: int, archives: int, interrupt: BaseException) -> InterruptedRunError:
    """Return the error of an interrupted batch, with the commands that continue it."""
    message = f"stopped: {ended:,} of {archives:,} archives ended"
    not_begun = archives - ended
    if isinstance(interrupt, InterruptedRunError):  # the run of the next archive had begun
        message += f"; of the next one: {interrupt}"
        not_begun -= 1
    if not_begun > 0:
        message += f"\n{not_begun:,} archives had not begun: start the same command again"
    return InterruptedRunError(message)


def _print_batch(archives: Sequence[ArchiveEnd], stores: StoreConfig) -> None:
    write_table([ARCHIVE_COLUMNS, *map(_cells, archives)], sys.stderr)
    reports = [end.report for end in archives if end.report is not None]
    for report in reports:
        command = next_command(
            report, reached=shown_connections(stores, report.source, report.destination)
        )
        if report.failed or command:
            sys.stderr.write(f"{printable(str(report.source))}\n")
            print_failures(report, sys.stderr, "")
        if command:
            sys.stderr.write(f"  next: {printable(command)}\n")
    done = sum(report.extracted + report.unchanged for report in reports)
    failed = sum(report.failed + report.missing for report in reports)
    size = sum(report.bytes_out for report in reports)
    complete = sum(end.exit_code == 0 for end in archives)
    sys.stderr.write(
        f"{complete:,} of {show_count(len(archives), 'archive')} "
        f"{choose_form(len(archives), 'is', 'are')} extracted: "
        f"{show_count(done, 'member')}, {show_bytes(size)}; "
        f"{show_count(failed, 'member')} failed\n"
    )


def _error_line(end: ArchiveEnd) -> str:
    """Return the error of an archive; put its name before it, unless the error begins with it."""
    error = end.error or ""
    if error.startswith(f"{end.source}:"):
        return error
    return f"{end.source}: {error}"


def _cells(end: ArchiveEnd) -> tuple[str, ...]:
    report = end.report
    if report is None:
        return ("ERROR", "", "", "", printable(_error_line(end)))
    count = f"{report.members:,}"
    failed = f"{report.failed + report.missing:,}"
    source = printable(end.source)
    if report.message:
        source += f": {printable(report.message)}"
    return (report.verdict.value, count, failed, report.run, source)
