"""What commands print and show of a run, and the signals that end them."""

import io
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st
from msgspec.structs import replace
from rich.console import Console

from s3unzip.cli import progress
from s3unzip.cli.plan import override_options
from s3unzip.cli.terminal import Stopping
from s3unzip.model import HEADER_BYTES, OnConflict, Options, Outcome, Pin, PlanSummary, Run, Status
from s3unzip.object_properties import ObjectProperties
from s3unzip.printable import (
    printable,
    printable_name,
    show_bytes,
    show_count,
    show_dollars,
    show_quantity,
    show_seconds,
)
from s3unzip.stores.config import parse_destination, parse_source
from tests.support.processes import COMMAND, run_process
from tests.support.servers import HANG_SECONDS, looks

SELECTED, BYTES = 1_000, 100_000_000
WORK = BYTES + SELECTED * HEADER_BYTES


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (printable("a\x1b[2Jb\u202egpj.exe"), r"a\x1b[2Jb\u202egpj.exe"),
        (printable("\U000e0001"), r"\U000e0001"),
        (printable("caf\u00e9 \u65e5"), "caf\u00e9 \u65e5"),
        (printable_name("\u202e"), r"\u202e"),
        (printable_name(r"\u202e"), r"\\u202e"),
        (printable_name(r"\x202e"), r"\\x202e"),
        (show_seconds(0.04), "0.0 s"),
        (show_seconds(12.34), "12.3 s"),
        (show_seconds(245.0), "4 min 05 s"),
        (show_seconds(3_725.0), "1 h 02 min"),
        (show_bytes(0), "0 B"),
        (show_bytes(1_023), "1023 B"),
        (show_bytes(1_536), "1.5 KiB"),
        (show_bytes(3 * 1024**3), "3 GiB"),
        (show_bytes(2**43), "8 TiB"),
        (show_count(1, "member"), "1 member"),
        (show_count(2_000, "member"), "2,000 members"),
        (show_dollars(0), "$0"),
        (show_dollars(1e-7), "$0.0000001"),
        (show_dollars(0.0000264), "$0.000026"),
        (show_dollars(0.00004), "$0.00004"),
        (show_dollars(0.00012345), "$0.00012"),
        (show_dollars(0.0054), "$0.0054"),
        (show_dollars(0.12345), "$0.1235"),
        (show_dollars(5), "$5.0000"),
        (show_dollars(50.4466), "$50.45"),
        (show_dollars(5_045), "$5,045.00"),
        (show_quantity(1, "request"), "1 request"),
        (show_quantity(2_100, "byte"), "2,100 bytes"),
        (show_quantity(0.684, "GB-s"), "0.68 GB-s"),
        (show_quantity(4_959.2, "GB-s"), "4,959 GB-s"),
    ],
)
def test_names_and_figures_read_well(shown: str, text: str) -> None:
    """Controls become escapes, which differ from their text; units and plurals are people's.

    So are amounts of money: cents for dollars, four decimals for fractions of a cent, and two
    digits of a tiny amount.
    """
    assert shown == text


@given(st.lists(st.text(st.sampled_from("\\xu20e\n\u202e\xad"), max_size=9), max_size=40))
def test_names_that_look_alike_are_alike(names: list[str]) -> None:
    """The shown text distinguishes names and is printable."""
    shown = {printable_name(name) for name in names}
    assert len(shown) == len(set(names))
    assert all(text.isprintable() for text in shown)


def display(
    columns: int = 200, *, quiet: bool = False, gone: float | None = None, terminal: bool = False
) -> tuple[progress.RunDisplay, io.StringIO]:
    """Return a display and what it writes; `gone` seconds ago a thousand members were planned."""
    out = io.StringIO()
    shown = progress.RunDisplay(
        Console(file=out, width=columns, force_terminal=terminal, color_system=None), quiet=quiet
    )
    if gone is not None:
        shown.planned(_plan(), gone)
    return shown, out


def _plan() -> PlanSummary:
    run = Run(
        parse_source("/a.zip"),
        parse_destination("/out"),
        id="r",
        pin=Pin(1),
        key_prefix="",
        created=0.0,
    )
    return PlanSummary(run, SELECTED, selected=SELECTED, bytes_in=BYTES, bytes_out=2 * BYTES)


@pytest.mark.parametrize(
    ("counts", "percent"),
    [
        ({"bytes_done": WORK // 2, "bytes_read": 3 * BYTES}, "50%"),
        ({"bytes_read": BYTES, "extracted": 999}, "0%"),
        ({"bytes_done": WORK - 1, "extracted": SELECTED}, "99%"),
        ({"bytes_done": WORK}, "100%"),
        ({"bytes_done": -1}, "0%"),
    ],
)
def test_percent_is_work_done_of_all_work(counts: Mapping[str, int], percent: str) -> None:
    """Work done of all work; 100 % is all of it, and what was only read counts nothing."""
    shown, _ = display(quiet=True, gone=0.0)
    shown.finished(counts)
    assert shown.figures().percent == percent
    shown.planned(_plan())  # what was told before the plan of a retry is of another plan
    assert shown.figures()[1:3] == (0.0, f"0/{SELECTED:,} members")
    for phase in ("plan", "check", "link", "report"):
        shown.phase(phase)  # none of them is part of what extraction has done
        assert shown.figures() == progress.Figures(progress.PHASE_TITLES[phase], share=None)


@pytest.mark.parametrize(
    ("gone", "done", "phase", "told"),
    [
        (0.0, 2, "extract", False),
        (3_600.0, 100, "extract", False),
        (3_600.0, 2, "scan", False),
        (3_600.0, 2, "extract", True),
    ],
)
def test_the_time_left_is_told_when_it_means_something(
    gone: float,
    done: int,
    phase: str,
    told: bool,  # noqa: FBT001 - a case
) -> None:
    """Not in the first seconds, before a part is done, or while a scan does what is not counted."""
    shown, _ = display(quiet=True, gone=gone)
    shown._phase = phase
    shown.figures()
    shown.finished({"bytes_done": WORK // done})
    assert shown.figures().remaining.endswith(" left") is told
    assert shown.figures().share == 1 / done


def test_a_log_gets_whole_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Phase, share, members, failures and bytes, again and again, and none after the end."""
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.01)
    shown, out = display()
    with shown:
        shown.planned(_plan())
        shown.finished({"bytes_done": WORK // 2, "extracted": 10, "failed": 1})
        while "members" not in out.getvalue():
            shown.note = ""
    lines = out.getvalue().splitlines()
    assert any(line.startswith("extracting: 50%, 11/1,000 members, 1 failed, ") for line in lines)
    assert all("\x1b" not in line for line in lines)
    shown.stop()
    assert out.getvalue().splitlines() == lines


def test_ctrl_c_while_the_display_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cursor, which the display hides, is shown again."""
    shown, out = display(terminal=True)
    monkeypatch.setattr(
        "rich.live._RefreshThread.start", lambda _: signal.raise_signal(signal.SIGINT)
    )
    with pytest.raises(KeyboardInterrupt), shown:
        shown.phase("plan")
    assert out.getvalue().rindex("\x1b[?25h") > out.getvalue().index("\x1b[?25l")


@pytest.mark.parametrize("quiet", [False, True])
def test_failures_are_printed_as_they_come(quiet: bool, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: FBT001 - a case
    """The first failures are lines with their code, also for a quiet command; then the report."""
    monkeypatch.setattr(progress, "LINE_SECONDS", 3_600.0)
    shown, out = display(quiet=quiet)
    failures = [
        Outcome(n, f"out/f{n}\x1b", Status.FAILED, reason="crc-mismatch", message="the data has 1")
        for n in range(progress.MAX_LIVE_FAILURES + 5)
    ]
    with shown:
        shown.phase("extract")
        shown.failed(failures)
    lines = out.getvalue().splitlines()
    assert (len(lines), lines[0], lines[-1]) == (
        progress.MAX_LIVE_FAILURES + 1,
        (
            "failed: out/f0\\x1b: The data does not have the declared CRC-32: the data has 1 "
            "(crc-mismatch)"
        ),
        "more members failed; the report counts them",
    )


def test_bytes_are_shown_while_one_member_is_extracted() -> None:
    """Half of the work of a run without an outcome is half of its bytes; then a rate is known."""
    shown, _ = display(quiet=True, gone=60.0)
    assert not shown.figures().rate
    shown.finished({"bytes_done": WORK // 2})
    figures = shown.figures()
    assert figures.size == f"{show_bytes(BYTES)} of {show_bytes(2 * BYTES)}"
    assert not figures.rate.endswith(" 0 B/s")


@pytest.mark.parametrize("columns", [40, 60, 80, 200])
def test_a_terminal_of_any_width_is_enough(columns: int) -> None:
    """No figure is cut off, at 40 columns neither."""
    shown, _ = display(columns, terminal=True, gone=0.0)
    with shown:
        shown.finished({"bytes_done": WORK // 2, "extracted": 500})
        rendered = shown._console().render_lines(shown.draw())
    drawn = "\n".join("".join(segment.text for segment in line) for line in rendered)
    assert all(text in drawn for text in ("extracting", "50%", "500/1,000 members", "0 failed"))
    assert "…" not in drawn


ENVIRONMENT = Options(
    key_template="{member}",
    on_conflict=OnConflict.NEVER,
    include=("*.json",),
    exclude=("tmp/**",),
    nested_depth=2,
    objects=ObjectProperties(storage_class="STANDARD_IA"),
    marker=True,
)


@pytest.mark.parametrize(
    "typed",
    [{}, {"include": ("*.csv",), "limit": 3}, {"lenient": True, "nested_depth": 1}],
)
def test_typed_options_replace_those_of_the_environment(typed: dict[str, Any]) -> None:
    """The options that nobody typed stay: selection, nesting and properties of objects."""
    assert override_options(ENVIRONMENT, Options(**typed)) == replace(ENVIRONMENT, **typed)


# Signals, also where Python drops their exception


ENDS = [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
NUMBERS = [*(number for number, _ in ENDS), signal.SIGALRM]


class Answer(io.RawIOBase):
    """A file object during whose last moment a signal comes."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self._number = number

    def close(self) -> None:
        if not self.closed:
            super().close()
            signal.raise_signal(self._number)


class Freed(Answer):
    """An object with a destructor of its own, whose exceptions Python prints."""

    def __del__(self) -> None:
        self.close()


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Each test leaves handlers and timer as they were."""
    before = [signal.getsignal(number) for number in NUMBERS]
    running = signal.getitimer(signal.ITIMER_REAL)[0] > 0  # pytest's own time limit
    yield
    assert [signal.getsignal(number) for number in NUMBERS] == before
    assert (signal.getitimer(signal.ITIMER_REAL)[0] > 0) is running


def test_a_timer_of_the_program_is_left_as_it_is() -> None:
    """A timer that ended before the signal came does not run again."""
    limit = signal.setitimer(signal.ITIMER_REAL, HANG_SECONDS)  # that of pytest
    try:
        with suppress(KeyboardInterrupt), Stopping().like_ctrl_c():
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            signal.raise_signal(signal.SIGINT)
        assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, *limit)


@pytest.mark.parametrize("freed", [Answer, Freed])
@pytest.mark.parametrize(("number", "code"), ENDS)
def test_a_lost_exception_is_raised_again(number: int, code: int, freed: type[Answer]) -> None:
    """Python drops it while it frees an object; a command that waits is interrupted."""
    stopping, reached = Stopping(), list[str]()

    def wait() -> None:
        with stopping.like_ctrl_c():
            freed(number)
            reached.append("the line after it")
            assert not any(False for _ in looks())

    with pytest.raises(KeyboardInterrupt):
        wait()
    assert (reached, stopping.exit_code) == (["the line after it"], code)


@pytest.mark.parametrize("number", ["1", "no number"])
def test_a_signal_that_is_lost_until_the_end_ends_the_command(number: str) -> None:
    """A command that ends before the exception is raised again did not end by itself."""

    def end() -> None:
        with Stopping().like_ctrl_c():
            Answer(signal.SIGINT)
            int(number)  # another error may be on its way

    with pytest.raises(KeyboardInterrupt):
        end()


def _wait_for_the_timer() -> bool:
    return any(not signal.getitimer(signal.ITIMER_REAL)[1] for _ in looks())


@pytest.mark.parametrize("number", ["1", "no number"])
def test_a_handled_signal_is_not_raised_again(number: str) -> None:
    """What a command puts on record after Ctrl-C is not interrupted, also after another error."""
    waited = False
    with Stopping().like_ctrl_c():
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            try:
                int(number)
                waited = _wait_for_the_timer()
            except ValueError:
                waited = _wait_for_the_timer()
    assert waited


def record_finally(waited: list[bool]) -> None:
    """Do something in any case, while the exception is on its way to its handler."""
    try:
        signal.raise_signal(signal.SIGINT)
    finally:
        waited.append(_wait_for_the_timer())


def record_and_stop(waited: list[bool]) -> None:
    """Do something when the first signal came, and hear a second one."""
    try:
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt:
        waited.append(True)
        signal.raise_signal(signal.SIGINT)
        waited.append(False)


@pytest.mark.parametrize("record", [record_finally, record_and_stop])
def test_only_a_second_signal_interrupts_the_clean_up(record: Callable[[list[bool]], None]) -> None:
    """What is done in any case ends; a user who presses Ctrl-C again does not want to wait."""
    waited = list[bool]()
    with pytest.raises(KeyboardInterrupt), Stopping().like_ctrl_c():
        record(waited)
    assert waited == [True]


def test_a_second_signal_at_the_end_is_not_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user presses Ctrl-C twice, and the program frees its objects after the first one."""
    printed = list[object]()
    monkeypatch.setattr(sys, "unraisablehook", printed.append)
    with pytest.raises(KeyboardInterrupt), Stopping().like_ctrl_c():
        signal.raise_signal(signal.SIGINT)
    Freed(signal.SIGINT)
    assert printed == []


def test_an_ignored_signal_stays_ignored() -> None:
    """As with nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Stopping().like_ctrl_c():
            signal.raise_signal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("module", ["typing", "click", "msgspec"])
def test_ctrl_c_while_a_command_is_imported(module: str, tmp_path: Path) -> None:
    """One line and the exit code, from the first import that takes time."""
    (tmp_path / f"{module}.py").write_text("raise KeyboardInterrupt")
    done = run_process([*COMMAND, "ls", "a.zip"], tmp_path, os.environ)
    assert (done.returncode, done.stderr) == (130, b"s3unzip: stopped\n")


@pytest.mark.parametrize(
    ("program", "code", "words"),
    [
        # NFS and FUSE may report only when a file is closed that its disk is full.
        ("os.dup = lambda _: 1_000; main()", 74, "the output is incomplete"),
        # Only the main thread has signals.
        ("threading.Thread(target=main).start()", 2, "in other threads, call s3unzip.extract"),
    ],
)
def test_programs_that_call_the_command(
    program: str, code: int, words: str, tmp_path: Path
) -> None:
    """The command ends the process with one line, and never with an internal error."""
    script = f"import os, threading; from s3unzip.__main__ import main; {program}"
    done = run_process([sys.executable, "-c", script], tmp_path, os.environ)
    assert (done.returncode, done.stderr.count(b"\n")) == (code, 1)
    assert words in done.stderr.decode()
