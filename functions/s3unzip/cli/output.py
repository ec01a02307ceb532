"""What a run shows: its progress on stderr, then its report, for people or as JSON.

On a terminal the progress is live, else a line every few seconds. The share has one basis: of the
compressed bytes of the selected members, those of members that have an outcome, and of a large
member what has passed. Each byte counts once, however often it is read.
"""

from __future__ import annotations

import math
import re
import sys
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from s3unzip.cli.printing import print_json
from s3unzip.cli.terminal import unescaped_errors
from s3unzip.context import Progress
from s3unzip.explanations import advise, describe, explain
from s3unzip.figures import show_bytes, show_count, show_seconds
from s3unzip.model import Location, Outcome, Report, Request, Verdict
from s3unzip.planning.select import parse_template
from s3unzip.printable import printable, printable_lines, printable_name
from s3unzip.settling.next_command import in_environment, next_command

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Self, TextIO

    from rich.console import Console
    from rich.live import Live
    from rich.table import Table

    from s3unzip.context import Reached
    from s3unzip.errors import Finding
    from s3unzip.model import NestedRun, PlanSummary
    from s3unzip.stores.config import StoreConfig

FAILURES_SHOWN = 5  # of each reason
RATE_SECONDS = 10.0  # the rates shown are means of so long
LINE_SECONDS = 10.0  # between two lines where there is no terminal
MIN_SECONDS, MIN_SHARE = 5.0, 0.05  # of a phase, before the time left means anything
WIDE = 70  # columns from which on bytes and rates are shown
MAX_FAILURES = 20  # shown as they come; the report counts them all
EXTRACTING, VERIFYING = "extract", "verify"
WORDS = {
    "plan": "reading the directory",
    "scan": "scanning for places to split",
    "link": "joining what was scanned",
    EXTRACTING: "extracting",
    "report": "writing the report",
    VERIFYING: "reading the central directory, listing the destination ...",
}


def print_report(
    report: Report,
    stream: TextIO | None = None,
    *,
    environment: str | None = None,
    rates: bool = True,
    reached: Reached | None = None,
) -> None:
    """Print verdict, totals, reasons, the first failures, and what to do next.

    `environment` is None for a run of this machine; `reached` is how the run's stores are reached,
    or the environment. Without `rates` it is not told how much was done in a second.
    """
    out, found_by = stream or sys.stderr, in_environment(environment, reached)
    place = report.destination
    if report.verdict is not Verdict.REJECTED:  # then the folder or prefix of the members
        prefix = parse_template(Request(report.source, place, report.options)).prefix
        place = Location(place.scheme, place.bucket, prefix[: prefix.rfind("/") + 1])
    title = f"{report.verdict}  {report.source} -> {place}"
    _print_head(report, title, out, found_by)
    if report.verdict is not Verdict.REJECTED:
        _print_totals(report, out, rates=rates)
    print_failures(report, out, found_by)
    if report.after_success is not None:
        out.write(f"  {printable(str(report.after_success))}\n")
    out.write(f"  run {report.run}\n")
    following = next_command(report, environment, reached)
    if following:
        out.write(f"  next: {printable(following)}\n")


def print_test(report: Report) -> None:
    """Print whether the members of an archive are sound, and what is wrong with the others."""
    out, word = sys.stderr, report.verdict.value
    title = f"{'SOUND' if report.verdict is Verdict.COMPLETED else word}  {report.source}"
    _print_head(report, title, out, None)
    if report.verdict is not Verdict.REJECTED:
        verbs = ("is" if report.extracted == 1 else "are", "is" if report.failed == 1 else "are")
        out.write(
            f"  {show_count(report.extracted, 'member')} {verbs[0]} sound, "
            f"{report.failed:,} {verbs[1]} not; {show_bytes(report.bytes_out)} decoded in "
            f"{show_seconds(max(report.finished - report.started, 1e-9))}\n"
        )
    print_warnings(report.warnings, out)
    print_failures(report, out, None)


def _print_head(report: Report, title: str, out: TextIO, where: str | None) -> None:
    """Print how a run ended, and why."""
    out.write(f"{printable(title)}\n")
    if report.message:
        out.write(f"  {printable(report.message)}{_code(report.reason, report.offset)}\n")
    if report.reason:
        out.write(f"  help: {_advise(report.reason, report.run, where)}\n")


def _advise(code: str, run: str = "", where: str | None = None) -> str:
    """Return the advice about a code; `where` is None where there is no run to go on with."""
    if where is None:
        return re.sub(r": s3unzip resume RUN( --failed)?", "", explain(code).advice)
    return advise(code, run, where)


def print_reasons(refused: Mapping[str, int], warnings: Mapping[str, int]) -> None:
    """Print what a directory alone shows: warnings, and why members are refused; by code."""
    for code, count in warnings.items():
        sys.stderr.write(f"{count:,} with a warning: {explain(code).sentence}{_code(code)}\n")
    for code, count in refused.items():
        sys.stderr.write(
            f"{count:,} refused: {explain(code).sentence}{_code(code)}\n  help: {_advise(code)}\n"
        )


def tell_finding(finding: Finding) -> str:
    """Return a finding as lines for a person: words, the code and place, what helps."""
    whose = f"{printable_name(finding.member)}: " if finding.member is not None else ""
    words = printable(describe(finding.code, finding.message))
    code = _code(finding.code, finding.offset)
    return f"{whose}{words}{code}\n  help: {_advise(finding.code)}"


def _code(code: str | None, offset: int | None = None) -> str:
    where = f" at byte {offset:,}" if offset is not None else ""
    return f" ({code}{where})" if code else ""


def _print_totals(report: Report, out: TextIO, *, rates: bool) -> None:
    """Print how much was done, by how many requests, and the warnings."""
    counts = [
        (report.extracted, "extracted"),
        (report.unchanged, "unchanged"),
        (report.failed, "failed"),
        (report.missing, "without outcome"),
        (report.excluded, "excluded"),
        (report.directories, "directory" if report.directories == 1 else "directories"),
    ]
    shown = ", ".join(f"{count:,} {name}" for count, name in counts if count)
    seconds, speed = max(report.finished - report.started, 1e-9), ""
    if rates:
        done = report.extracted + report.unchanged
        speed = (
            f" in {show_seconds(seconds)}: {done / seconds:,.0f} members/s, "
            f"{show_bytes(report.bytes_out / seconds)}/s"
        )
        if report.workers:
            speed += f" by {show_count(report.workers, 'worker')}"
    asked = report.requests
    retried = f", {asked.retries:,} retried" if asked.retries else ""
    slowed = f", {asked.throttled:,} throttled" if asked.throttled else ""
    out.write(
        f"  {show_count(report.members, 'member')}: {shown or 'none'}\n"
        f"  {show_bytes(report.bytes_in)} read, {show_bytes(report.bytes_out)} written{speed}\n"
    )
    if not (report.source.store.is_local and report.destination.store.is_local):
        out.write(
            f"  requests: {asked.get:,} GET, {asked.put:,} PUT, "
            f"{show_count(asked.part + asked.copy, 'part')}, "
            f"{asked.head + asked.list:,} HEAD and LIST{retried}{slowed}\n"
        )
    print_warnings(report.warnings, out)


def print_warnings(counts: Mapping[str, int], out: TextIO) -> None:
    """Print how often a warning was found."""
    out.writelines(
        f"  {count:,} with a warning: {explain(code).sentence}{_code(code)}\n"
        for code, count in counts.items()
    )


def print_failures(report: Report, out: TextIO, where: str | None) -> None:
    """Print the reasons, each with its first members."""
    for code, count in report.reasons.items() if report.failed else ():
        advice = _advise(code, report.run, where)
        out.write(f"  {count:,} failed: {explain(code).sentence}{_code(code)}\n")
        out.write(f"    help: {advice}\n")
        for one in [one for one in report.failures if one.reason == code][:FAILURES_SHOWN]:
            at = f" at byte {one.offset:,}" if one.offset is not None else ""
            out.write(f"    {printable_name(one.key)}{at}: {printable(one.message)}\n")
        if count > FAILURES_SHOWN:
            show = f": s3unzip show {report.run} --failures{where}" if where is not None else ""
            out.write(f"    and {count - FAILURES_SHOWN:,} more{show}\n")


def failed_line(outcome: Outcome) -> str:
    """Return what is said of a failed member."""
    code = outcome.reason or "unknown"
    words = printable(describe(code, outcome.message))
    return f"{printable_name(outcome.key)}: {words}{_code(code)}"


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


class RunDisplay(Progress):
    """Shows phase, share, members, failures and the time left."""

    def __init__(self, console: Console | None = None, *, quiet: bool = False) -> None:
        self._given = console
        self._quiet = quiet
        self._lock = threading.RLock()
        self.counts: Counter[str] = Counter()
        self._history: list[tuple[float, float, int, int]] = []
        self.plan: PlanSummary | None = None
        self._phase = "plan"
        self._since = time.monotonic()  # of the phase
        self.note = self._trouble = ""
        self._failures = 0
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
        """Show that a phase begins: plan, scan, link, extract, report or verify."""
        with self._lock:
            self._phase, self._since = name, time.monotonic()
            self._history.clear()
        self._start()

    def planned(self, plan: PlanSummary, gone: float = 0.0) -> None:
        """Show the work ahead of a run that began `gone` seconds ago."""
        with self._lock:
            self.counts.clear()
            self.plan, self._phase = plan, EXTRACTING
            self._since = time.monotonic() - gone
        self._start()

    def finished(self, counts: Mapping[str, int]) -> None:
        """Take increments."""
        with self._lock:
            self.counts.update(counts)

    def failed(self, outcomes: Sequence[Outcome]) -> None:
        """Print members that failed, the first few of the run."""
        for outcome in outcomes:
            self._failures += 1
            if self._failures <= MAX_FAILURES:
                self.say(f"failed: {failed_line(outcome)}")
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
            self._console().print(Text(printable_lines(text)), soft_wrap=True)

    def figures(self) -> Figures:
        """Return what is known now."""
        with self._lock:
            counts, plan, now = Counter(self.counts), self.plan, time.monotonic()
            done = counts["extracted"] + counts["unchanged"] + counts["failed"]
            elapsed = max(now - self._since, 1e-3)
            if self._phase == VERIFYING and done:
                read = f"{show_bytes(counts['bytes_read'])} read" if counts["bytes_read"] else ""
                rate, equal = f"{done / elapsed:,.0f} objects/s", f"{counts['extracted']:,} equal"
                return Figures("comparing", None, equal, f"{counts['failed']:,} not", read, rate)
            if plan is None or self._phase != EXTRACTING:
                return Figures(WORDS.get(self._phase, self._phase), None, note=self.note)
            share = min(1.0, max(0.0, counts["bytes_done"] / max(1, plan.work)))
            self._history.append((now, share, done, counts["bytes_written"]))
            while len(self._history) > 2 and now - self._history[1][0] > RATE_SECONDS:
                self._history.pop(0)
            then, share_then, done_then, written_then = self._history[0]
            passed = max(now - then, 1e-3)
        speed, left = (share - share_then) / passed, ""
        if speed > 0 and elapsed >= MIN_SECONDS and MIN_SHARE <= share < 1:
            left = f"about {show_seconds((1 - share) / speed)} left"
        written = (counts["bytes_written"] - written_then) / passed
        return Figures(
            WORDS[EXTRACTING],
            share,
            f"{done:,}/{plan.selected:,} members",
            f"{counts['failed']:,} failed",
            f"{show_bytes(counts['bytes_written'])} of {show_bytes(plan.bytes_out)}",
            f"{(done - done_then) / passed:,.0f} members/s, {show_bytes(written)}/s",
            left,
            self.note,
        )

    def _console(self) -> Console:
        from rich.console import Console

        if self._given is None:
            self._given = Console(file=unescaped_errors(), highlight=False)
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
        failed = Text(now.failed, style="red" if self.counts["failed"] else "dim")
        first, second, whole = Table.grid(padding=(0, 1)), Table.grid(padding=(0, 2)), Table.grid()
        first.add_row(Text(now.phase), bar, now.percent.rjust(4), Text(now.left))
        second.add_row(Text(now.members), failed, *((now.size, now.rate) if wide else ()))
        whole.add_row(first)
        whole.add_row(second)
        if now.note:
            whole.add_row(Text(now.note, style="dim"))
        return whole


class RunOutput(RunDisplay):
    """What ``run`` shows: progress, each report, what became of archives inside the archive."""

    def __init__(self, *, quiet: bool, json: bool) -> None:
        super().__init__(quiet=quiet)
        self.nested_runs: list[NestedRun] = []
        self.reached: Reached | None = None  # for the command that starts a run again
        self._json = json

    def reported(self, report: Report) -> None:
        """Print the report instead of the progress."""
        self.stop()
        if self._json:
            print_json(report)
        if not self._quiet:
            print_report(report, reached=self.reached)

    def nested(self, run: NestedRun) -> None:
        """Print what became of an archive inside the archive."""
        self.nested_runs.append(run)
        if self._json:
            print_json(run)
        if self._quiet:
            return
        said = run.message or ""
        if run.reason:
            said = describe(run.reason, run.message) + _code(run.reason)
        lines = [f"nested {run.verdict or 'not extracted'}  {printable_name(run.key)}\n"]
        lines += [f"  {printable(said)}\n"] if said else []
        lines += [f"  run {run.run}\n"] if run.run is not None else []
        sys.stderr.writelines(lines)


def shown_connections(config: StoreConfig, *places: Location) -> StoreConfig:
    """Return the options that a command needs to reach `places` again, as short as it can be.

    What comes from the environment's variables is not repeated, nor are options of S3 where no
    place is in S3.
    """
    if not any(place.store.takes_s3_options for place in places):
        return type(config)(other_hosts=config.other_hosts)
    return config.recorded().typed()
