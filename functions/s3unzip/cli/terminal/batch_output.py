"""What ``s3unzip run`` shows of several archives: one progress, then one table."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from s3unzip.api.batch import BatchProgress
from s3unzip.cli.terminal.figures import printable, show_bytes, show_count, write_table
from s3unzip.cli.terminal.json_lines import print_json
from s3unzip.cli.terminal.progress import Figures, RunDisplay
from s3unzip.cli.terminal.warnings import warn

if TYPE_CHECKING:
    from s3unzip.model import ArchiveEnd, Batch

TITLES = ("STATE", "MEMBERS", "FAILED", "RUN", "SOURCE")


class BatchOutput(RunDisplay, BatchProgress):
    """Shows how many archives have ended, the members and bytes of all, and the end of each."""

    def __init__(self, *, quiet: bool, json: bool) -> None:
        super().__init__(quiet=quiet)
        self._json = json
        self._archives = 0
        self._ended_archives = 0

    def found(self, archives: int, size: int) -> None:  # noqa: ARG002 - shown as archives
        """Show the work ahead."""
        self._archives = archives
        self._since = time.monotonic()
        self._start()

    def figures(self) -> Figures:
        """Return what is known now."""
        with self._lock:
            counts = dict(self._counts)
        done = sum(counts.get(name, 0) for name in ("extracted", "unchanged", "failed"))
        seconds = max(time.monotonic() - self._since, 1e-3)
        written = counts.get("bytes_written", 0)
        return Figures(
            f"{self._ended_archives:,}/{self._archives:,} archives",
            self._ended_archives / max(1, self._archives),
            f"{done:,} members",
            f"{counts.get('failed', 0):,} failed",
            show_bytes(written),
            f"{done / seconds:,.0f} members/s, {show_bytes(written / seconds)}/s",
        )

    def ended(self, end: ArchiveEnd) -> None:
        """Count an archive; say what is wrong with one that ended without a report."""
        self._ended_archives += 1
        if end.error is not None:
            self.say(_name_once(end.source, end.error))

    def print(self, batch: Batch) -> None:
        """Print the end of all archives: a table, or one object of JSON."""
        self.stop()
        for end in batch.archives:
            for sentence in end.warnings:
                warn(f"{end.source}: {sentence}")
        if self._json:
            print_json(batch)
        if not self._quiet:
            print_batch(batch)


def print_batch(batch: Batch) -> None:
    """Print a line for each archive, then the sums."""
    write_table([TITLES, *(_cells(end) for end in batch.archives)], sys.stderr)
    reports = [end.report for end in batch.archives if end.report is not None]
    done = sum(report.extracted + report.unchanged for report in reports)
    failed = sum(report.failed + report.missing for report in reports)
    right = sum(end.exit_code == 0 for end in batch.archives)
    size = show_bytes(sum(report.bytes_out for report in reports))
    sys.stderr.write(
        f"{right:,} of {show_count(len(batch.archives), 'archive')} "
        f"{'is' if len(batch.archives) == 1 else 'are'} extracted: "
        f"{show_count(done, 'member')}, {size}; {show_count(failed, 'member')} failed\n"
    )


def _name_once(source: str, error: str) -> str:
    """Return an error with the archive that it is about; most of them name it themselves."""
    return error if error.startswith(f"{source}:") else f"{source}: {error}"


def _cells(end: ArchiveEnd) -> tuple[str, ...]:
    report = end.report
    if report is None:
        return ("ERROR", "", "", "", printable(_name_once(end.source, end.error or "")))
    count = f"{report.extracted + report.unchanged:,}"
    failed = f"{report.failed + report.missing:,}"
    why = f": {printable(report.message)}" if report.message else ""
    return (report.verdict.value, count, failed, report.run, printable(end.source) + why)
