"""What ``s3unzip run`` shows, as the progress of an extraction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s3unzip import Progress
from s3unzip.cli.terminal.json_lines import print_json
from s3unzip.cli.terminal.output import print_nested, print_report
from s3unzip.cli.terminal.progress import RunDisplay

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from s3unzip.model import Connections, NestedRun, Outcome, PlanSummary, Report


class RunOutput(Progress):
    """What a run shows: live progress, its report, what became of archives inside the archive."""

    def __init__(self, *, quiet: bool, json: bool) -> None:
        self.display = RunDisplay(quiet=quiet)
        self.nested_runs: list[NestedRun] = []
        self.connections: Connections | None = None  # for the command that starts a run again
        self._quiet = quiet
        self._json = json

    def planned(self, plan: PlanSummary) -> None:
        """Show the work ahead."""
        self.display.planned(plan)

    def finished(self, counts: Mapping[str, int]) -> None:
        """Take increments."""
        self.display.finished(counts)

    def failed(self, outcomes: Sequence[Outcome]) -> None:
        """Show members that failed."""
        self.display.failed(outcomes)

    def phase(self, name: str) -> None:
        """Show the phase."""
        self.display.phase(name)

    def reported(self, report: Report) -> None:
        """Print the report instead of the progress."""
        self.display.stop()
        if self._json:
            print_json(report)
        if not self._quiet:
            print_report(report, connections=self.connections)

    def nested(self, run: NestedRun) -> None:
        """Print what became of an archive inside the archive."""
        self.nested_runs.append(run)
        if self._json:
            print_json(run)
        if not self._quiet:
            print_nested(run)
