"""What the bench of bursts computes, and which requests it slows down."""

from __future__ import annotations

import re
import zipfile
from io import BytesIO

import pytest

from bench.burst import DURATION, MEMBERS, SLOW_PUTS, SLOW_SECONDS, TASKS, Alone, make_archive


def test_the_bound_has_the_tasks_and_once_what_is_around_them() -> None:
    """8 tasks of 0.8 s on 4 workers need 1.6 of an archive's 2.8 s; 200 archives need 321.2 s."""
    alone = Alone(archive=2.8, task=0.8)
    assert alone.around == pytest.approx(1.2)
    assert alone.bound(200) == pytest.approx(200 * 1.6 + 1.2)
    assert alone.bound(1) == pytest.approx(alone.archive)
    assert Alone(archive=1.0, task=0.8).around == 0.0


@pytest.mark.parametrize(
    ("path", "slow"),
    [
        ("/members/burst-many-007/3.json", True),
        ("/members/burst-warm/3.json", True),
        ("/archives/burst-many-007.zip", False),
        ("/members/day-1/3.json", False),
        ("/work/runs/9f/outcomes/batch-0000001.jsonl", False),
    ],
)
def test_only_members_of_the_burst_are_slow(path: str, slow: bool) -> None:  # noqa: FBT001
    """Archives, records and the small archive beside the burst are as quick as ever."""
    seconds, _, pattern = SLOW_PUTS.partition(" ")
    assert float(seconds) == SLOW_SECONDS
    assert bool(re.search(pattern, path)) is slow


def test_durations_are_those_of_report_lines() -> None:
    """Lambda's REPORT line has the time in which the invocation took its place, billed or not."""
    text = "END RequestId: a\nREPORT RequestId: a\tDuration: 812 ms\tBilled Duration: 900 ms\n"
    assert DURATION.findall(text) == ["812"]


def test_each_archive_is_another_one() -> None:
    """An archive has its tasks' members, and equal names have equal bytes."""
    with zipfile.ZipFile(BytesIO(make_archive("a"))) as archive:
        assert len(archive.namelist()) == TASKS * MEMBERS
    assert make_archive("a") != make_archive("b")
