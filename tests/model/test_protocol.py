"""Every order of the steps of one run, explored."""

import pytest

from tests.model.protocol import Protocol, State, explore

FOUND = {
    "late_reports_replace": "a verdict is never replaced by an older one",
    "settles_from_memory": "a verdict is never replaced by an older one",
    "outcome_before_object": "the object of an outcome is there",
    "report_before_outcomes": "a report comes after its outcomes",
    "plan_before_rounds": "a plan that is on record is whole",
    "consumes_faults": "an archive has a report, or an operator can see it",
    "never_ends": "a run ends after three rounds without progress",
}


def test_no_order_of_steps_breaks_a_promise() -> None:
    """With three faults at any step and an operator who resumes, every promise holds."""
    states, broken = explore(Protocol(), State(faults=3))
    assert broken is None, broken
    assert states > 100_000


@pytest.mark.parametrize(("mistake", "promise"), FOUND.items())
def test_a_mistake_of_the_protocol_is_found(mistake: str, promise: str) -> None:
    """Each mistake breaks the promise that it should, by a way of a few steps."""
    protocol = Protocol(**{mistake: True})
    # Four rounds without progress need four faults, and nothing but an execution.
    alone = State(faults=4, resumed=0, messages=0).execute()
    start = alone if mistake == "never_ends" else State()
    _, broken = explore(protocol, start)
    assert broken is not None
    assert broken.promise == promise
    assert 1 < len(broken.steps) < 40
