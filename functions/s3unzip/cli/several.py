"""``run`` of several archives: each is a run of its own, and a table says how they ended."""

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
from s3unzip.cli.decisions import list_decisions
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


class BatchDisplay(RunDisplay):
    """Shows how many archives ended, in place of the plans and phases of each."""

    def __init__(self, archives: int, *, quiet: bool) -> None:
        super().__init__(quiet=quiet)
        self._archives = archives
        self.ends: list[ArchiveEnd] = []
        self.inside: list[NestedRun] = []  # the archives inside the one at work

    def phase(self, name: str) -> None:  # noqa: ARG002 - of each archive
        """Show how many archives ended, whatever is done for one."""
        self._start()

    def planned(self, plan: PlanSummary, gone: float = 0.0) -> None:
        """Show nothing."""

    def nested(self, run: NestedRun) -> None:
        """Keep what became of an archive inside the archive."""
        self.inside.append(run)

    def ended(self, end: ArchiveEnd) -> None:
        """Count an archive; say what is wrong with one that ended without a report."""
        self.ends.append(end)
        if end.error is not None:
            self.print_line(_name_once(end))

    def figures(self) -> Figures:
        """Return what is known now."""
        with self._lock:
            counts = Counter(self.counts)
        seconds = max(time.monotonic() - self._since, 1e-3)
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


def extract_several(arguments: Arguments) -> int:
    """Extract several archives, each as its own run; return the highest exit code."""
    if arguments.delete_extra:
        raise UsageError("--delete-extra: is for one archive; run them one by one")
    destination = parse_destination(arguments.dest)
    options = arguments.options()
    stores = arguments.config()
    for text in arguments.sources:
        arguments.check_places(_read_place(text), destination)
    requests = [
        make_request(source, destination, options, arguments.after_success)
        for source in _find_sources(arguments, stores)
    ]
    check_apart(requests)
    if arguments.dry_run:
        return max([list_decisions(arguments, request) for request in requests])
    batch = _extract_all(requests, arguments, stores)
    for end in batch.archives:
        for text in end.warnings:
            warn(f"{end.source}: {text}")
    if arguments.json:
        print_json(batch)
    if not arguments.quiet:
        _print_batch(batch.archives, stores)
    return batch.exit_code


def _read_place(text: str) -> Location:
    """Return where archives are; of a folder, a prefix or a glob only the scheme counts."""
    if not names_several(text):
        return parse_source(text)
    return Location("s3" if "://" in text else "file", "", text)


def _find_sources(arguments: Arguments, stores: StoreConfig) -> list[Location]:
    """Return the archives that folders, prefixes and globs name; `NotFoundError`: one is not there.

    A member's name after the archive is read as DEST: the error says so.
    """
    is_only_source = len(arguments.sources) == 1  # `names_one` has listed it
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
    """Extract one archive after the other; return how all ended."""
    first = requests[0]
    policy = make_policy(first.options, arguments.password(), first.destination)
    with (
        BatchDisplay(len(requests), quiet=arguments.quiet) as display,
        open_machine(
            stores, policy, arguments.tuning(), processes=arguments.processes, progress=display
        ) as machine,
    ):
        for request in requests:
            try:
                display.ended(_end_one(machine, request, display))
            except (InterruptedRunError, KeyboardInterrupt) as interrupt:
                raise _interrupted(len(display.ends), len(requests), interrupt) from interrupt
    return Batch(max(end.exit_code for end in display.ends), tuple(display.ends))


def _end_one(machine: Machine, request: Request, display: BatchDisplay) -> ArchiveEnd:
    """Extract one of several archives; what goes wrong is in the result."""
    warnings: list[str] = []
    display.inside = []
    source = str(request.source.public)
    try:
        report = extract_one(machine, request, display, warnings.append)
    except InterruptedRunError:
        raise
    except S3UnzipError as error:
        return ArchiveEnd(source, error.exit_code, error=str(error))
    inside = tuple(display.inside)
    code = report.verdict.exit_code or int(not all(run.is_right for run in inside))
    return ArchiveEnd(source, code, report, nested=inside, warnings=tuple(warnings))


def _interrupted(ended: int, archives: int, interrupt: BaseException) -> InterruptedRunError:
    """Return the error that says how to go on."""
    message = f"stopped: {ended:,} of {archives:,} archives ended"
    not_begun = archives - ended
    if isinstance(interrupt, InterruptedRunError):  # a run had begun
        message += f"; of the next one: {interrupt}"
        not_begun -= 1
    if not_begun > 0:
        message += f"\n{not_begun:,} archives had not begun: start the same command again"
    return InterruptedRunError(message)


def _print_batch(archives: Sequence[ArchiveEnd], stores: StoreConfig) -> None:
    """Print how all archives ended, and what is to do next."""
    write_table([ARCHIVE_COLUMNS, *map(_cells, archives)], sys.stderr)
    reports = [end.report for end in archives if end.report is not None]
    for report in reports:
        reached = shown_connections(stores, report.source, report.destination)
        command = next_command(report, environment=None, reached=reached)
        if report.failed or command:
            sys.stderr.write(f"{printable(str(report.source))}\n")
            print_failures(report, sys.stderr, "")
        if command:
            sys.stderr.write(f"  next: {printable(command)}\n")
    done = sum(report.extracted + report.unchanged for report in reports)
    failed = sum(report.failed + report.missing for report in reports)
    size = sum(report.bytes_out for report in reports)
    right = sum(end.exit_code == 0 for end in archives)
    sys.stderr.write(
        f"{right:,} of {show_count(len(archives), 'archive')} "
        f"{choose_form(len(archives), 'is', 'are')} extracted: "
        f"{show_count(done, 'member')}, {show_bytes(size)}; "
        f"{show_count(failed, 'member')} failed\n"
    )


def _name_once(end: ArchiveEnd) -> str:
    """Return an error with the archive that it is about; most of them name it themselves."""
    error = end.error or ""
    if error.startswith(f"{end.source}:"):
        return error
    return f"{end.source}: {error}"


def _cells(end: ArchiveEnd) -> tuple[str, ...]:
    """Return the cells of `ARCHIVE_COLUMNS` for one archive."""
    report = end.report
    if report is None:
        return ("ERROR", "", "", "", printable(_name_once(end)))
    count = f"{report.extracted + report.unchanged:,}"
    failed = f"{report.failed + report.missing:,}"
    source = printable(end.source)
    if report.message:
        source += f": {printable(report.message)}"
    return (report.verdict.value, count, failed, report.run, source)
