"""One invocation of a function: the values of its event, and its remaining time."""

from __future__ import annotations

import math
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from s3unzip.errors import UsageError
from s3unzip.settings import EXPRESS_END, EXPRESS_SECONDS
from s3unzip.stores.clock import LocalClock

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aws_lambda_powertools.utilities.typing import LambdaContext

T = TypeVar("T")


class LambdaClock(LocalClock):
    """Real time, and the remaining time of one invocation.

    `end` is when the child workflow that called the function ends, in Unix seconds: a second
    attempt in the same child has less time than Lambda's limit.
    """

    def __init__(self, invocation: LambdaContext, end: float = math.inf) -> None:
        super().__init__()
        self._invocation = invocation
        self._end = end

    def remaining(self) -> float:
        """Return the seconds until Lambda or the child workflow ends this invocation."""
        left = self._invocation.get_remaining_time_in_millis() / 1_000
        return min(left, self._end - self.now())


def parse_field(event: Mapping[str, Any], name: str, kind: type[T]) -> T:
    """Return the value `name` of an event as a `kind`.

    Raises:
        UsageError: it is missing, or not such a value.
    """
    if name not in event:
        raise UsageError(f"the event has no {name!r}; it has {sorted(event)}")
    try:
        return msgspec.convert(event[name], kind)
    except msgspec.ValidationError as error:
        raise UsageError(f"the event's {name!r} is not a {kind.__name__}: {error}") from error


def child_end(event: Mapping[str, Any]) -> float:
    """Return when the child workflow that sent `event` ends, in Unix seconds.

    ``entered`` is the time at which the child entered its first state. Without ``entered`` the
    caller is no child, and only Lambda's own limit applies.

    Raises:
        UsageError: it is not an ISO 8601 time.
    """
    entered = event.get("entered")
    if entered is None:
        return math.inf
    try:
        began = datetime.fromisoformat(entered).timestamp()
    except (TypeError, ValueError) as error:
        raise UsageError(f"the event's 'entered' is no time: {entered!r}") from error
    return began + EXPRESS_SECONDS - EXPRESS_END
