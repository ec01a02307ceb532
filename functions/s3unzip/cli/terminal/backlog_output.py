"""What ``s3unzip submit`` and ``s3unzip backlog`` print for people."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from s3unzip.cli.terminal.figures import (
    printable,
    show_bytes,
    show_count,
    show_seconds,
)
from s3unzip.money import show_dollars

if TYPE_CHECKING:
    from collections.abc import Mapping

    from s3unzip.forecast.backlog import BacklogForecast
    from s3unzip.operate.backlog.values import BacklogProblem, BacklogReport, Submission

TOLD_EVERY = 10_000  # archives


class Counter:
    """Says on stderr how far a command is that takes minutes."""

    def __init__(self, verb: str) -> None:
        self._verb = verb
        self._told = 0

    def __call__(self, count: int) -> None:
        """Say so each 10,000 archives."""
        if count // TOLD_EVERY > self._told // TOLD_EVERY:
            sys.stderr.write(f"{self._verb} {count:,} archives\n")
        self._told = count


def print_submission(found: Submission) -> None:
    """Print what was found, and the forecast of the whole."""
    left = [f"{count:,} ended as {verdict}" for verdict, count in found.ended.items()]
    left += [f"{found.gone:,} not there"] if found.gone else []
    left += [f"{found.outside:,} outside"] if found.outside else []
    words = f"; left out: {', '.join(left)}" if left else ""
    archives = show_count(found.archives, "archive")
    sys.stdout.write(f"{archives} to extract, {show_bytes(found.size)}{words}\n")
    if found.forecast is not None:
        _print_forecast(found.forecast)


def _print_forecast(forecast: BacklogForecast) -> None:
    duration, dollars = forecast.duration, forecast.dollars
    seconds = _range(show_seconds(duration.low), show_seconds(duration.high))
    money = _range(show_dollars(dollars.low), show_dollars(dollars.high))
    puts = f"{show_dollars(forecast.unavoidable)} of it is one PUT a member"
    lines = [
        f"members: about {forecast.members:,}, {show_bytes(forecast.bytes_out)}",
        f"time: {show_seconds(duration.expected)} {seconds}, limited by {forecast.bound}",
        f"cost: {show_dollars(dollars.expected)} {money}; {puts}",
        f"ways: {', '.join(f'{count:,} {way}' for way, count in forecast.ways.items())}",
    ]
    if forecast.refused:
        lines.append(f"refused: {forecast.refused:,} of the archives whose directories were read")
    if forecast.above_limit:
        rejected = show_count(forecast.above_limit, "archive")
        lines.append(f"above runs.max_cost: {rejected}, which the environment will reject")
    lines += [f"assumed: {one}" for one in forecast.assumptions]
    sys.stdout.writelines(f"  {line}\n" for line in lines)


def _range(low: str, high: str) -> str:
    return f"({low} to {high})"


def confirm(archives: int) -> bool:
    """Ask whether to queue so many archives."""
    sys.stderr.write(f"Queue {show_count(archives, 'archive')}? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def print_backlog(report: BacklogReport, found_by: str) -> None:
    """Print the report of a backlog."""
    sources = ", ".join(printable(one) for one in report.sources)
    state = "ended" if report.ended else "not ended"
    archives = show_count(report.archives, "archive")
    sys.stdout.write(f"{report.backlog}: {archives} of {sources}: {state}\n")
    failed = f"{report.failed + report.missing:,} failed or missing"
    lines = [
        f"archives: {_join(_count_archives(report)) or 'none'}",
        f"members: {report.extracted:,} extracted, {report.unchanged:,} unchanged, {failed}",
        f"bytes: {show_bytes(report.bytes_in)} read, {show_bytes(report.bytes_out)} written",
    ]
    if report.seconds is not None:
        lines.append(
            f"time: {show_seconds(report.seconds)} (forecast "
            f"{show_seconds(report.forecast_seconds)}), {show_seconds(report.task_seconds)} of work"
        )
    lines.append(
        f"cost: {show_dollars(report.cost)} (forecast {show_dollars(report.forecast_cost)})"
    )
    sys.stdout.writelines(f"  {line}\n" for line in lines)
    sys.stdout.writelines(f"{_tell(problem)}\n" for problem in report.problems)
    if report.not_queued:
        sys.stderr.write(
            f"not queued: {show_count(report.not_queued, 'archive')}; queue the rest with "
            f"s3unzip submit --resume {report.backlog}{found_by}\n"
        )


def tell_progress(report: BacklogReport) -> str:
    """Return one line about a backlog that has not ended."""
    return f"{show_count(report.archives, 'archive')}: {_join(_count_archives(report))}"


def _count_archives(report: BacklogReport) -> Mapping[str, int]:
    return {
        **report.verdicts,
        "replaced": report.replaced,
        "gone": report.gone,
        "lost": report.lost,
        "running": report.running,
        "waiting for workers": report.waiting,
        "queued": report.queued,
        "not queued": report.not_queued,
    }


def _join(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)


def _tell(problem: BacklogProblem) -> str:
    words = [problem.state, problem.run, printable(problem.source)]
    why = printable(problem.message or problem.reason or "")
    if problem.failed:
        members = show_count(problem.failed, "member")
        why = f"{members} failed or missing{': ' if why else ''}{why}"
    return "  ".join(words) + (f": {why}" if why else "")
