"""What ``s3unzip run`` shows, as the progress of an extraction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s3unzip import Progress
from s3unzip.cli.terminal.json_lines import print_json
from s3unzip.cli.terminal.output import print_nested, print_report
from s3unzip.cli.terminal.progress import RunDisplay

if TYPE_CHECKING:
    from s3unzip.model import Connections, NestedRun, Report


class RunOutput(RunDisplay, Progress):
    """What a run shows: live progress, its report, what became of archives inside the archive."""

    def __init__(self, *, quiet: bool, json: bool) -> None:
        super().__init__(quiet=quiet)
        self.nested_runs: list[NestedRun] = []
        self.connections: Connections | None = None  # for the command that starts a run again
        self._json = json

    def reported(self, report: Report) -> None:
        """Print the report instead of the progress."""
        self.stop()
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
