"""How long a run waits before it tries again what is left."""

from __future__ import annotations

from s3unzip.runs.rounds import MAX_WAIT, MIN_WAIT, Round, next_round


def test_waits_grow_without_progress() -> None:
    """Each round without a finished task waits twice as long, up to a bound."""
    round_, waits = next_round(5, None), []
    for _ in range(8):
        waits.append(round_.wait)
        round_ = next_round(5, round_)
    assert waits == [15, 30, 60, 120, 240, 480, 600, 600]
    assert round_.rounds == 8


def test_progress_makes_the_wait_short() -> None:
    """After a round that finished a task the next one begins soon."""
    assert next_round(4, Round(5, 480, 7)) == Round(4, MIN_WAIT, 8)


def test_late_rounds_wait_longer() -> None:
    """Even with progress the wait grows with the rounds, so that the history has room."""
    assert next_round(4, Round(5, 20, 99)).wait == 100
    assert next_round(4, Round(5, 20, 5_000)).wait == MAX_WAIT
