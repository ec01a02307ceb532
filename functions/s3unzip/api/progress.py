"""What a caller is told while a run works; a separate module, so that it imports little."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from s3unzip.model import ArchiveEnd, NestedRun, Outcome, PlanSummary, Report


class Progress:
    """Told of what happens in a run. Subclass it and override what you need.

    `finished`, `failed` and `trouble` may be called from any thread, the others from the thread of
    `extract`.
    """

    def planned(self, plan: PlanSummary) -> None:
        """Learn what there is to do, before the first task begins."""

    def finished(self, counts: Mapping[str, int]) -> None:
        """Take increments: extracted, unchanged, failed, and bytes read, copied, written and done.

        `bytes_done` goes up to `PlanSummary.work`. No increment is negative: what is done again
        counts once.
        """

    def failed(self, outcomes: Sequence[Outcome]) -> None:
        """Learn of members that failed, as they fail."""

    def phase(self, name: str) -> None:
        """Learn that a phase of the run begins: plan, scan, link, extract or report."""

    def trouble(self, message: str) -> None:
        """Learn, in one line, that a store does not answer and is tried again."""

    def reported(self, report: Report) -> None:
        """Learn how the run ended, before the archives inside the archive begin."""

    def nested(self, run: NestedRun) -> None:
        """Learn what became of one archive inside the archive."""


class BatchProgress(Progress):
    """Told of what happens to several archives."""

    def found(self, archives: int, size: int) -> None:
        """Learn how many archives there are, and how many bytes those have whose size is known."""

    def ended(self, end: ArchiveEnd) -> None:
        """Learn how one archive ended."""
