"""The progress of a run on stderr: live on a terminal, else a line every few seconds.

The share has one basis: of the compressed bytes of the selected members, those of members that
have an outcome, and of a large member what has passed. Each byte counts once, however often it is
read. Nothing starts a thread before the first phase: a
program that has threads cannot be forked safely, and its workers are forked before that.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from s3unzip.cli.figures import printable, printable_name, show_bytes, show_seconds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Self

    from rich.console import Console
    from rich.live import Live
    from rich.table import Table

    from s3unzip.model import Outcome, PlanSummary

RATE_SECONDS = 10.0  # the rates shown are means of so long
LINE_SECONDS = 10.0  # between two lines where there is no terminal
MIN_SECONDS, MIN_SHARE = 5.0, 0.05  # of a phase, before the time left means anything
WIDE = 70  # columns from which on bytes and rates are shown
MAX_FAILURES = 20  # shown as they come; the report counts them all
EXTRACTING = "extract"
WORDS = {
    "plan": "reading the directory",
    "scan": "scanning for places to split",
    "link": "joining what was scanned",
    EXTRACTING: "extracting",
    "report": "writing the report",
}


class Figures(NamedTuple):
    """What is known of a phase at one moment, in words; empty where it means nothing."""

    phase: str
    share: float | None  # 0 to 1
    members: str = ""
    failed: str = ""
    size: str = ""
    rate: str = ""
    left: str = ""
    note: str = ""

    @property
    def percent(self) -> str:
        """The share, rounded down: 100 % is all; empty where there is none."""
        return "" if self.share is None else f"{math.floor(100 * self.share)}%"

    def line(self) -> str:
        """Return one line for a log."""
        figures = (self.percent, *self[2:])
        return f"{self.phase}: {', '.join(filter(None, figures)) or '...'}"


class RunDisplay:
    """Shows phase, share, members, failures and the time left."""

    def __init__(self, console: Console | None = None, *, quiet: bool = False) -> None:
        self._given = console
        self._quiet = quiet
        self._lock = threading.RLock()
        self._counts: Counter[str] = Counter()
        self._history: list[tuple[float, float, int, int]] = []
        self._summary: PlanSummary | None = None
        self._phase = "plan"
        self._since = time.monotonic()  # of the phase
        self._note = ""
        self._failures = 0
        self._trouble = ""
        self._live: Live | None = None
        self._ended = threading.Event()
        self._lines: threading.Thread | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Remove the display from the terminal, print no more lines."""
        self._ended.set()
        if self._live is not None:
            self._live.stop()
            self._live = None
        if self._lines is not None:
            self._lines.join()
            self._lines = None

    def phase(self, name: str) -> None:
        """Show that a phase begins: plan, scan, link, extract or report."""
        with self._lock:
            self._phase = name
            self._since = time.monotonic()
            self._history.clear()
        self._start()

    def planned(self, summary: PlanSummary, gone: float = 0.0) -> None:
        """Show the work ahead of a run that began `gone` seconds ago."""
        with self._lock:
            self._counts.clear()
            self._summary = summary
            self._phase = EXTRACTING
            self._since = time.monotonic() - gone
        self._start()

    def note(self, text: str) -> None:
        """Show what the figures have no place for."""
        self._note = text

    def finished(self, counts: Mapping[str, int]) -> None:
        """Take increments."""
        with self._lock:
            self._counts.update(counts)

    def failed(self, outcomes: Sequence[Outcome]) -> None:
        """Print members that failed, the first few of the run."""
        from s3unzip.explanations import describe

        for outcome in outcomes:
            self._failures += 1
            if self._failures <= MAX_FAILURES:
                code = outcome.reason or "unknown"
                words = printable(describe(code, outcome.message))
                self.say(f"failed: {printable_name(outcome.key)}: {words} ({code})")
            elif self._failures == MAX_FAILURES + 1:
                self.say("more members failed; the report lists them")

    def trouble(self, message: str) -> None:
        """Print that a store does not answer; each worker tells it, one line is enough."""
        if message != self._trouble:
            self._trouble = message
            self.say(printable(message))

    def say(self, text: str) -> None:
        """Print a line that stays."""
        from rich.text import Text

        if not self._quiet:
            self._console().print(Text(text), soft_wrap=True)

    def figures(self) -> Figures:
        """Return what is known now."""
        with self._lock:
            counts, summary, phase = Counter(self._counts), self._summary, self._phase
            now = time.monotonic()
            if summary is None or phase != EXTRACTING:
                return Figures(WORDS.get(phase, phase), None, note=self._note)
            done = counts["extracted"] + counts["unchanged"] + counts["failed"]
            share = min(1.0, max(0.0, counts["bytes_done"] / max(1, summary.work)))
            self._history.append((now, share, done, counts["bytes_written"]))
            while len(self._history) > 2 and now - self._history[1][0] > RATE_SECONDS:
                self._history.pop(0)
            then, share_then, done_then, written_then = self._history[0]
            elapsed, passed = now - self._since, max(now - then, 1e-3)
        speed = (share - share_then) / passed
        left = (1 - share) / speed if speed > 0 else None
        known = left is not None and elapsed >= MIN_SECONDS and MIN_SHARE <= share < 1
        members = (done - done_then) / passed
        written = (counts["bytes_written"] - written_then) / passed
        return Figures(
            WORDS[phase],
            share,
            f"{done:,}/{summary.selected:,} members",
            f"{counts['failed']:,} failed",
            f"{show_bytes(counts['bytes_written'])} of {show_bytes(summary.bytes_out)}",
            f"{members:,.0f} members/s, {show_bytes(written)}/s",
            f"about {show_seconds(left)} left" if known and left is not None else "",
            self._note,
        )

    def _console(self) -> Console:
        from rich.console import Console

        if self._given is None:
            self._given = Console(stderr=True, highlight=False)
        return self._given

    def _start(self) -> None:
        """Begin to show, on a terminal or in lines."""
        if self._quiet or self._live is not None or self._lines is not None:
            return
        console = self._console()
        if console.is_terminal and not console.is_dumb_terminal:
            from rich.live import Live

            self._live = Live(
                get_renderable=self.draw, console=console, refresh_per_second=5, transient=True
            )
            self._live.start()
            return
        self._lines = threading.Thread(target=self._print_lines, daemon=True, name="progress")
        self._lines.start()

    def _print_lines(self) -> None:
        while not self._ended.wait(LINE_SECONDS):
            self.say(self.figures().line())

    def draw(self) -> Table:
        """Draw a bar with its figures; a narrow terminal gets two short lines."""
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        now = self.figures()
        wide = self._console().width >= WIDE
        bar = ProgressBar(
            total=1.0, completed=now.share or 0.0, width=24 if wide else 10, pulse=now.share is None
        )
        failed = Text(now.failed, style="red" if self._counts["failed"] else "dim")
        first = Table.grid(padding=(0, 1))
        first.add_row(Text(now.phase), bar, now.percent.rjust(4), Text(now.left))
        whole = Table.grid()
        whole.add_row(first)
        second = Table.grid(padding=(0, 2))
        second.add_row(Text(now.members), failed, *((now.size, now.rate) if wide else ()))
        whole.add_row(second)
        if now.note:
            whole.add_row(Text(now.note, style="dim"))
        return whole
