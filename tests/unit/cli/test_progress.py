"""What the progress of a run says, on terminals of any width and in logs."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from s3unzip.cli import progress
from s3unzip.cli.progress import RunDisplay
from s3unzip.model import HEADER_BYTES, Options, Outcome, Pin, PlanSummary, Run, Status
from s3unzip.stores.locations import parse_destination, parse_source

if TYPE_CHECKING:
    from collections.abc import Mapping

SELECTED, BYTES = 1_000, 100_000_000
WORK = BYTES + SELECTED * HEADER_BYTES


def plan() -> PlanSummary:
    """Return the plan of a run of a thousand members."""
    source, destination = parse_source("/a.zip"), parse_destination("/out")
    run = Run("r", source, Pin(1), destination, Options(), "", created=0.0)
    return PlanSummary(run, SELECTED, selected=SELECTED, bytes_in=BYTES, bytes_out=2 * BYTES)


def display(columns: int = 100, *, quiet: bool = False) -> tuple[RunDisplay, io.StringIO]:
    """Return a display and what it writes; not a terminal."""
    out = io.StringIO()
    console = Console(file=out, width=columns, force_terminal=False, color_system=None)
    return RunDisplay(console, quiet=quiet), out


@pytest.mark.parametrize("phase", ["plan", "scan", "link", "report"])
def test_other_phases_are_named_and_have_no_share(phase: str) -> None:
    """Reading the directory and scanning are no part of what extraction has done."""
    shown, _ = display(quiet=True)
    shown.planned(plan())
    shown.finished({"bytes_read": BYTES // 2})
    shown.phase(phase)
    now = shown.figures()
    assert now.phase == progress.WORDS[phase]
    assert (now.share, now.left) == (None, "")


@pytest.mark.parametrize(
    ("counts", "percent"),
    [
        ({"bytes_done": WORK // 2, "bytes_read": 3 * BYTES}, "50%"),
        ({"bytes_read": BYTES, "bytes_copied": BYTES, "extracted": 999}, "0%"),
        ({"bytes_done": WORK - 1, "extracted": SELECTED}, "99%"),
        ({"bytes_done": WORK}, "100%"),
        ({"bytes_done": -1}, "0%"),
    ],
)
def test_the_share_has_one_basis(counts: Mapping[str, int], percent: str) -> None:
    """Work done of all work; 100 % is all of it, and what was only read counts nothing."""
    shown, _ = display(quiet=True)
    shown.planned(plan())
    shown.finished(counts)
    assert shown.figures().percent == percent


def test_a_plan_begins_at_nothing() -> None:
    """What was told before the plan of a retry is of another plan."""
    shown, _ = display(quiet=True)
    shown.finished({"bytes_done": WORK, "extracted": SELECTED})
    shown.planned(plan())
    now = shown.figures()
    assert (now.percent, now.members) == ("0%", f"0/{SELECTED:,} members")


def test_the_time_left_is_told_when_it_means_something() -> None:
    """Not in the first seconds of the extraction, nor before a part of it is done."""
    shown, _ = display(quiet=True)
    shown.planned(plan(), gone=0.0)
    shown.figures()
    shown.finished({"bytes_done": WORK // 2})
    assert shown.figures().left == ""
    late, _ = display(quiet=True)
    late.planned(plan(), gone=3_600.0)
    late.figures()
    late.finished({"bytes_done": WORK // 100})
    assert late.figures().left == ""
    late.finished({"bytes_done": WORK // 2})
    assert late.figures().left.endswith(" left")


def test_a_log_gets_whole_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Phase, share, members, failures and bytes, again and again, and none after the end."""
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.01)
    shown, out = display()
    with shown:
        shown.phase("plan")
        shown.planned(plan())
        shown.finished({"bytes_done": WORK // 2, "extracted": 10, "failed": 1})
        while "members" not in out.getvalue():
            shown.note("")
    lines = out.getvalue().splitlines()
    assert any(line.startswith("extracting: 50%, 11/1,000 members, 1 failed, ") for line in lines)
    assert all("\x1b" not in line for line in lines)
    shown.stop()
    assert out.getvalue().splitlines() == lines


def test_failures_are_told_as_they_come() -> None:
    """The first ones in words with their code, then a hint at the report."""
    shown, out = display(columns=200)
    failures = [
        Outcome(n, f"out/f{n}\x1b", Status.FAILED, reason="crc-mismatch", message="the data has 1")
        for n in range(progress.MAX_FAILURES + 5)
    ]
    shown.failed(failures)
    lines = out.getvalue().splitlines()
    assert lines[0] == (
        "failed: out/f0\\x1b: The data does not have the declared CRC-32: the data has 1 "
        "(crc-mismatch)"
    )
    assert lines[-1] == "more members failed; the report lists them"
    assert len(lines) == progress.MAX_FAILURES + 1


def test_quiet_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """No line, no failure, no thread."""
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.01)
    shown, out = display(quiet=True)
    with shown:
        shown.phase("extract")
        shown.failed([Outcome(0, "k", Status.FAILED, reason="crc-mismatch")])
    assert out.getvalue() == ""


@pytest.mark.parametrize("columns", [40, 60, 80, 200])
def test_a_terminal_of_any_width_is_enough(columns: int) -> None:
    """No figure is cut off, at 40 columns neither."""
    out = io.StringIO()
    console = Console(file=out, width=columns, force_terminal=True, color_system=None)
    shown = RunDisplay(console)
    with shown:
        shown.planned(plan())
        shown.finished({"bytes_done": WORK // 2, "extracted": 500})
        drawn = "\n".join(
            "".join(segment.text for segment in line) for line in console.render_lines(shown.draw())
        )
    assert "extracting" in drawn
    assert "50%" in drawn
    assert "500/1,000 members" in drawn
    assert "0 failed" in drawn
    assert "…" not in drawn
