"""The local runner: in which order work begins."""

from __future__ import annotations

from s3unzip.local.runner import longest_first
from s3unzip.model import Task, TaskKind


def task(name: str) -> Task:
    """Return a task of that id."""
    return Task(name, TaskKind.BATCH, (0, 0), 1, (0, 0), 0, 1.0)


def test_long_slices_begin_first_and_others_keep_their_order() -> None:
    """Of what is known only after linking, the longest may not begin last."""
    tasks = [task(name) for name in ("batch-1", "segment-a", "batch-0", "segment-b", "segment-c")]
    ordered = longest_first(tasks, {"segment-a": 5, "segment-b": 70, "segment-c": 6})
    assert [one.id for one in ordered] == [
        "segment-b",
        "segment-c",
        "segment-a",
        "batch-1",
        "batch-0",
    ]
