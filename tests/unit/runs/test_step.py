"""A step of a run: it ends in time, and counts what it read and what was odd."""

import pytest

from s3unzip.context import Context
from s3unzip.errors import DeadlineError
from s3unzip.model import Location, Options, Pin, Run
from s3unzip.runs.step import Step
from tests.memory import ManualClock, MemoryStores


def make_step(clock: ManualClock) -> Step:
    """Return a step of a run, at that clock."""
    context = Context(stores=MemoryStores(), clock=clock)
    source, destination = Location("s3", "in", "a.zip"), Location("s3", "out", "")
    run = Run("a-1", source, Pin(1), destination, Options(), "out/", created=0.0)
    return Step(run, "batch-1", context, context.calls())


def test_a_step_goes_on_until_the_margin_before_its_end() -> None:
    """With exactly the margin left it may; with less it stops, and says which step it was."""
    clock = ManualClock()
    step = make_step(clock)
    margin = step.context.tuning.margin_seconds
    clock.left = margin
    step.check_time()
    clock.left = margin * 0.999
    with pytest.raises(DeadlineError, match=f"batch-1: {margin:.0f} s before"):
        step.check_time()


def test_a_step_counts() -> None:
    """Bytes that it read."""
    step = make_step(ManualClock())
    step.add_read(3)
    step.add_read(4)
    assert step.bytes_read == 7
