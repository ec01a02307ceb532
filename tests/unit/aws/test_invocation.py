"""The time that one invocation has."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest
from s3unzip.aws.invocation import LambdaClock, child_end

from s3unzip.errors import UsageError
from s3unzip.settings import EXPRESS_END, EXPRESS_SECONDS
from tests.unit.aws.contexts import Invocation


def test_a_child_ends_before_its_lambda() -> None:
    """A second attempt late in a child's life sees what is left of that life."""
    clock = LambdaClock(Invocation(240), time.time() + 50)
    assert clock.remaining() <= 50
    assert LambdaClock(Invocation(20), time.time() + 3_600).remaining() == 20


def test_the_end_of_a_child() -> None:
    """An Express child is over 300 seconds after its first state was entered."""
    began = datetime(2026, 11, 22, 8, 0, tzinfo=UTC).timestamp()
    for text in ("2026-11-22T08:00:00.000Z", "2026-11-22T08:00:00+00:00"):
        assert child_end({"entered": text}) == began + EXPRESS_SECONDS - EXPRESS_END


def test_a_caller_that_is_no_child_sets_no_end() -> None:
    """Without a time only Lambda's own limit holds."""
    assert LambdaClock(Invocation(30), child_end({})).remaining() == 30


def test_a_time_that_is_none_is_refused() -> None:
    """The line says what the event has."""
    with pytest.raises(UsageError, match="'entered' is no time: 'noon'"):
        child_end({"entered": "noon"})
