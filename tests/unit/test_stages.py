"""The stage of a split member follows from its tasks on record."""

import pytest

from s3unzip.stages import AFTER_TASKS, Stage, current_stage


@pytest.mark.parametrize(
    ("ended", "stage"),
    [
        ({Stage.SCAN: False}, Stage.SCAN),
        ({Stage.SCAN: True}, Stage.LINK),
        ({Stage.LINK: False}, Stage.LINK),  # planned copies, which no worker does
        ({Stage.SCAN: True, Stage.SLICE: False}, Stage.SLICE),
        ({Stage.SCAN: False, Stage.SLICE: True}, Stage.FINISH),  # a scan that came late
        ({Stage.SLICE: True, Stage.STREAM: False}, Stage.STREAM),
        ({Stage.STREAM: True}, Stage.DONE),
        ({Stage.SLICE: False, Stage.DONE: True}, Stage.DONE),
    ],
)
def test_the_latest_stage_counts(ended: dict[Stage, bool], stage: Stage) -> None:
    """It goes on when all its tasks have ended; what earlier stages do late changes nothing."""
    assert current_stage(ended) is stage


def test_a_stage_is_followed_by_a_later_one() -> None:
    """So each member comes to its outcome."""
    assert all(
        [*Stage].index(later) > [*Stage].index(stage) for stage, later in AFTER_TASKS.items()
    )
