"""The progress of a run on stderr: a live display on a terminal, else a line every few seconds.

The share is the fraction of the selected members' compressed bytes that has been processed. All
bytes of a member with an outcome count as processed. Of a large member without an outcome, the
bytes that have been read also count. Bytes that are read again are counted only once. The displayed
number of bytes is the share times the number of bytes that the run writes.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple, Self

from s3unzip.cli.terminal import unescaped_errors
from s3unzip.context import Progress
from s3unzip.explanations import describe
from s3unzip.printable import printable, printable_lines, printable_name, show_bytes, show_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rich.console import Console, Group

    from s3unzip.model import Outcome, PlanSummary

RATE_SECONDS = 10.0  # rates are averages over the last ten seconds
LINE_SECONDS = 5.0  # interval between two lines if there is no terminal
# Until both minimums are reached, an estimate of the time left would be far off.
MIN_SECONDS = 5.0  # minimum duration of a phase before the time left is shown
MIN_SHARE = 0.05  # minimum share of the run before the time left is shown
WIDE = 70  # minimum width, in columns, of a terminal that shows bytes and rates
MAX_LIVE_FAILURES = 20  # maximum number of failures printed during the run; the report counts all
EXTRACTING = "extract"
VERIFYING = "verify"
PHASE_TITLES = {
    "plan": "reading the directory",
    "check": "checking what earlier attempts wrote",
    "scan": "scanning for places to split",
    "link": "linking the scanned segments",
    EXTRACTING: "extracting",
    "report": "writing the report",
    VERIFYING: "reading the central directory, listing the destination ...",
}


def failed_line(outcome: Outcome) -> str:
    """Return a line with the key of a failed member, the message and the code."""
    code = outcome.reason or "unknown"
    # Some messages begin with the key, which is already in the line.
    message = describe(code, outcome.message).removeprefix(f"{outcome.key}: ")
    return f"{printable_name(outcome.key)}: {printable(message)} ({code})"


class Figures(NamedTuple):
    """The figures of a phase at one moment, as strings; figures that do not apply are empty."""

    phase: str
    share: float | None  # 0 to 1
    members: str = ""
    failed: str = ""
    size: str = ""
    rate: str = ""
    remaining: str = ""
    note: str = ""

    @property
    def percent(self) -> str:
        """The share in percent, rounded down so that 100% means complete; empty if unknown."""
        if self.share is None:
            return ""
        return f"{math.floor(100 * self.share)}%"

    def line(self) -> str:
        """Return one line for a log."""
        # `self[2:]` are the figures after the phase and the share.
        return f"{self.phase}: {', '.join(filter(None, (self.percent, *self[2:]))) or '...'}"


class _Moment(NamedTuple):
    time: float  # seconds of the monotonic clock
    share: float
    members: int


class RunDisplay(Progress):
    """Shows the phase, the completed share, the members, the failures and the time left.

    Any thread can call `finished` and `failed`. Only one thread draws the display or prints lines.
    """

    def __init__(self, console: Console | None = None, *, quiet: bool = False) -> None:
        self._own_console = console
        self._quiet = quiet
        self._lock = threading.RLock()
        self.counts: Counter[str] = Counter()
        self._moments: list[_Moment] = []  # recent moments, for computing rates
        self.plan: PlanSummary | None = None
        self._phase = "plan"
        self._phase_start = time.monotonic()
        self.note = ""  # the last line of the display, about tasks and retries
        self._trouble = ""  # the last message that `trouble` printed
        self._failures = 0  # number of failed members; only the first ones are printed
        self._end_display: Callable[[], None] | None = None  # None if nothing is shown
        self._ended = threading.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Remove the display from the terminal, or stop the thread that prints lines."""
        self._ended.set()
        if self._end_display is not None:
            self._end_display()
            self._end_display = None

    def phase(self, name: str) -> None:
        """Show which phase has started: plan, check, scan, link, extract, report or verify."""
        with self._lock:
            self._phase = name
            self._phase_start = time.monotonic()
            self._moments.clear()
        self._start_display()

    def planned(self, plan: PlanSummary, elapsed: float = 0.0) -> None:
        """Show the plan of a run that began `elapsed` seconds ago; reset the counts."""
        with self._lock:
            self.counts.clear()
            self.plan = plan
        self.phase(EXTRACTING)
        self._phase_start -= elapsed

    def finished(self, counts: Mapping[str, int]) -> None:
        """Add increments to the counts."""
        with self._lock:
            self.counts.update(counts)

    def failed(self, outcomes: Sequence[Outcome]) -> None:
        """Print the first failed members of the run, even if the command is quiet."""
        for outcome in outcomes:
            self._failures += 1
            if self._failures <= MAX_LIVE_FAILURES:
                self.print_line(f"failed: {failed_line(outcome)}")
            elif self._failures == MAX_LIVE_FAILURES + 1:
                self.print_line("more members failed; the report counts them")

    def trouble(self, message: str) -> None:
        """Print once that a store does not respond, even if every worker reports it."""
        if message != self._trouble and not self._quiet:
            self._trouble = message
            self.print_line(printable(message))

    def print_line(self, text: str) -> None:
        """Print a line above the display, even if the command is quiet."""
        from rich.text import Text

        self._console().print(Text(printable_lines(text)), soft_wrap=True)

    def figures(self) -> Figures:
        """Return the current figures, and keep them, so that the next call can compute rates."""
        with self._lock:
            counts = Counter(self.counts)
            plan = self.plan
            phase = self._phase
            now = time.monotonic()
            elapsed = max(now - self._phase_start, 1e-3)  # never 0
            done = counts["extracted"] + counts["unchanged"] + counts["failed"]
            if phase == VERIFYING and done:
                return _figures_of_verify(counts, done / elapsed)
            title = PHASE_TITLES.get(phase, phase)
            # A scan also has a share, because members are extracted during a scan.
            if plan is None or phase not in {"scan", EXTRACTING}:
                return Figures(title, None, note=self.note)
            # `bytes_done` and `work` are sums of `PlannedMember.work`: compressed bytes and a
            # constant for each member.
            share = min(1.0, max(0.0, counts["bytes_done"] / max(1, plan.work)))
            earlier = self._remember(_Moment(now, share, done))
        interval = max(now - earlier.time, 1e-3)
        speed = (share - earlier.share) / interval  # fraction of the run per second
        remaining = ""
        # The share does not include scanned bytes, so it does not show when a scan will end.
        if phase == EXTRACTING and elapsed >= MIN_SECONDS and MIN_SHARE <= share < 1 and speed > 0:
            remaining = f"about {show_seconds((1 - share) / speed)} left"
        rate = ""
        if earlier.time < now:  # the first call in a phase has no earlier moment
            rate = (
                f"{(done - earlier.members) / interval:,.0f} members/s, "
                f"{show_bytes(speed * plan.bytes_out)}/s"
            )
        return Figures(
            title,
            share,
            members=f"{done:,}/{plan.selected:,} members",
            failed=f"{counts['failed']:,} failed",
            size=f"{show_bytes(share * plan.bytes_out)} of {show_bytes(plan.bytes_out)}",
            rate=rate,
            remaining=remaining,
            note=self.note,
        )

    def _remember(self, moment: _Moment) -> _Moment:
        """Record a moment; return the moment since which rates are measured.

        The result is the latest moment that is more than `RATE_SECONDS` old, or the first moment if
        no moment is that old.
        """
        self._moments.append(moment)
        while len(self._moments) > 2 and moment.time - self._moments[1].time > RATE_SECONDS:
            self._moments.pop(0)  # the next moment is also old enough
        return self._moments[0]

    def _console(self) -> Console:
        from rich.console import Console

        if self._own_console is None:
            self._own_console = Console(file=unescaped_errors(), highlight=False)
        return self._own_console

    def _start_display(self) -> None:
        """Start the live display or the thread that prints lines, unless one of them is running."""
        if self._quiet or self._end_display is not None:
            return
        console = self._console()
        if console.is_terminal and not console.is_dumb_terminal:
            from rich.live import Live

            live = Live(
                get_renderable=self.draw, console=console, refresh_per_second=5, transient=True
            )
            # Set `_end_display` before the start: if Ctrl-C interrupts the start, `RunDisplay.stop`
            # restores the cursor.
            self._end_display = live.stop
            live.start()
        else:
            lines = threading.Thread(target=self._print_lines, daemon=True, name="progress")
            lines.start()
            # A thread can be joined only after the thread has started. `RunDisplay.stop` sets
            # `_ended`, which ends the thread, and then joins it.
            self._end_display = lines.join

    def _print_lines(self) -> None:
        while not self._ended.wait(LINE_SECONDS):
            self.print_line(self.figures().line())

    def draw(self) -> Group:
        """Draw a bar with its figures, or two short lines on a narrow terminal."""
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        figures = self.figures()
        bar = ProgressBar(
            total=1.0,
            completed=figures.share or 0.0,
            width=10,
            pulse=figures.share is None,  # an animation if the share is unknown
        )
        failed_style = "dim"
        if self.counts["failed"]:
            failed_style = "red"
        cells = [Text(figures.members), Text(figures.failed, failed_style)]
        if self._console().width >= WIDE:
            bar.width = 24
            cells += [Text(figures.size), Text(figures.rate)]
        first_line = Table.grid(padding=(0, 1))
        first_line.add_row(
            Text(figures.phase), bar, figures.percent.rjust(4), Text(figures.remaining)
        )
        lines: list[Table | Text] = [first_line, Text("  ").join(cells)]
        if figures.note:
            lines.append(Text(figures.note, "dim"))
        return Group(*lines)


def _figures_of_verify(counts: Mapping[str, int], rate: float) -> Figures:
    size = ""
    if counts["bytes_read"]:
        size = f"{show_bytes(counts['bytes_read'])} read"
    return Figures(
        "comparing",
        share=None,
        members=f"{counts['extracted']:,} equal",
        failed=f"{counts['failed']:,} not",  # the line reads "5 equal, 1 not"
        size=size,
        rate=f"{rate:,.0f} objects/s",
    )
