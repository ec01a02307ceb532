"""The stage of a split member follows from its tasks on record."""

import pytest

from s3unzip.stages import LIFE, Stage, current_stage


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


def test_every_stage_leads_to_an_outcome() -> None:
    """Stages only lead to later ones, and what workers do leads to one stage."""
    order = list(Stage)
    assert list(LIFE) == order
    for stage, rule in LIFE.items():
        assert all(order.index(following) > order.index(stage) for following in rule.then)
        assert bool(rule.then) is (stage is not Stage.DONE)
        assert len(rule.then) == 1 or not rule.by_tasks
