"""The driver of the benches: what it passes on, keeps and prints at the end."""

import sys

import pytest

from bench.__main__ import Outcome, make_table, run_bench


def test_figures_are_kept_and_lines_pass(capfd: pytest.CaptureFixture[str]) -> None:
    """Lines come through as they are; those of figures are kept too, with the exit code."""
    code = "print('turn 1'); print('BENCH a.b 1.5 s'); print('BENCH no'); raise SystemExit(3)"
    outcome = run_bench("small", [sys.executable, "-c", code])
    assert outcome.figures == [("a.b", "1.5", "s")]
    assert outcome.exit_code == 3
    assert outcome.seconds > 0
    assert capfd.readouterr().out == "turn 1\nBENCH a.b 1.5 s\nBENCH no\n"


def test_one_table_has_all_figures() -> None:
    """Each bench has a heading with its seconds; failures and long benches are marked."""
    outcomes = [
        Outcome("small", 12.4, 0, [("small.rate", "9.6", "ratio")]),
        Outcome("large", 900.0, 0, [("stream.mb_s", "100", "MB/s")]),
        Outcome("plan", 1.0, 1),
    ]
    assert make_table(outcomes) == [
        "small (12 s)",
        "  small.rate          9.6  ratio",
        "large (900 s, longer than the aim of 600 s)",
        "  stream.mb_s         100  MB/s",
        "plan (1 s, FAILED with exit code 1)",
    ]
