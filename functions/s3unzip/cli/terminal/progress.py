"""The live display of a run: on a terminal, on stderr; nothing when piped.

Rich is imported when something is drawn: a quiet run starts without it.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from functools import cached_property
from typing import TYPE_CHECKING

from s3unzip.cli.terminal.figures import show_bytes, show_seconds

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType
    from typing import Self

    from rich.console import Console
    from rich.live import Live
    from rich.table import Table

    from s3unzip.model import PlanSummary

HEADER_BYTES = 128  # read around a member's data: its local header, its descriptor
RATE_SECONDS = 5.0  # the rates shown are of so long


class RunDisplay:
    """Members, bytes, rates, failures and the time left, redrawn a few times a second."""

    def __init__(self, console: Console | None = None, *, enabled: bool | None = None) -> None:
        self._given = console
        if enabled is None:
            enabled = sys.stderr.isatty() and self._console.is_terminal
        self._enabled = enabled
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._started = time.monotonic()
        self._history: list[tuple[float, int, int]] = []
        self._summary: PlanSummary | None = None
        self._live: Live | None = None
        self._note = ""

    @cached_property
    def _console(self) -> Console:
        from rich.console import Console

        return self._given or Console(stderr=True, highlight=False)

    @property
    def shown(self) -> bool:
        """Whether it draws on a terminal."""
        return self._enabled

    def __enter__(self) -> Self:
        if self._enabled:
            from rich.live import Live

            self._live = Live(
                get_renderable=self._draw,
                console=self._console,
                refresh_per_second=5,
                transient=True,
            )
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Remove the display from the terminal."""
        if self._live is not None:
            self._live.stop()

    def planned(self, summary: PlanSummary, gone: float = 0.0) -> None:
        """Show the work ahead of a run that began `gone` seconds ago."""
        self._summary = summary
        self._started = time.monotonic() - gone

    def note(self, text: str) -> None:
        """Show a line of text below the counts."""
        self._note = text

    def say(self, text: str) -> None:
        """Print a line that stays."""
        from rich.text import Text

        self._console.print(Text(text), soft_wrap=True)

    def finished(self, counts: Mapping[str, int]) -> None:
        """Take increments."""
        with self._lock:
            self._counts.update(counts)

    def _draw(self) -> Table:
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        table = Table.grid(padding=(0, 2))
        summary = self._summary
        if summary is None:
            table.add_row(Text("reading the central directory ...", style="dim"))
            return table
        with self._lock:
            counts = Counter(self._counts)
        done = counts["extracted"] + counts["unchanged"] + counts["failed"]
        share = _share(summary, done, counts["bytes_read"])
        members, speed = self._rates(done, counts["bytes_written"])
        elapsed = time.monotonic() - self._started
        left = elapsed / share - elapsed if share > 0 else 0.0
        table.add_row(
            ProgressBar(total=1.0, completed=share, width=30),
            f"{share:4.0%}",
            f"{done:,}/{summary.selected:,} members",
            f"{show_bytes(counts['bytes_written'])} of {show_bytes(summary.bytes_out)}",
        )
        failed = counts["failed"]
        table.add_row(
            f"{members:,.0f} members/s",
            "",
            Text(f"{failed:,} failed", style="red" if failed else "dim"),
            f"{show_bytes(speed)}/s",
        )
        table.add_row(f"{show_seconds(elapsed)} gone, {show_seconds(left)} left")
        if not self._note:
            return table
        whole = Table.grid()
        whole.add_row(table)
        whole.add_row(Text(self._note, style="dim"))
        return whole

    def _rates(self, members: int, written: int) -> tuple[float, float]:
        now = time.monotonic()
        self._history.append((now, members, written))
        while len(self._history) > 2 and now - self._history[1][0] > RATE_SECONDS:
            self._history.pop(0)
        then, members_then, written_then = self._history[0]
        passed = max(now - then, 1e-3)
        return (members - members_then) / passed, (written - written_then) / passed


def _share(summary: PlanSummary, done: int, read: int) -> float:
    """Return how much is done, 0 to 1: by members, or by bytes where a few large ones take long."""
    by_members = done / max(1, summary.selected)
    if by_members >= 1:
        return 1.0
    whole = summary.bytes_in + HEADER_BYTES * summary.selected
    return max(by_members, min(0.99, read / max(1, whole)))
