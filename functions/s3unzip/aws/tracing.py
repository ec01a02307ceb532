"""Traces of invocations that X-Ray samples; the others never import the X-Ray SDK.

Lambda says with each invocation whether it is sampled, in `HEADER` (developer guide of Lambda,
"Defined runtime environment variables"; the header's form is in the developer guide of X-Ray,
"Tracing header"). For an invocation that is not sampled the SDK sends nothing, but its import takes
a tenth of a cold start.
"""

from __future__ import annotations

import os
from functools import cache, wraps
from typing import TYPE_CHECKING, TypeVar

import aws_lambda_powertools.tracing.tracer as powertools
from aws_lambda_powertools import Tracer

from s3unzip.metric_names import SERVICE

if TYPE_CHECKING:
    from collections.abc import Callable

E = TypeVar("E")  # event
C = TypeVar("C")  # context
R = TypeVar("R")  # answer

HEADER = "_X_AMZN_TRACE_ID"


def trace(handler: Callable[[E, C], R]) -> Callable[[E, C], R]:
    """Make a subsegment of each sampled invocation, with the error that ends it, if any."""

    @wraps(handler)
    def traced(event: E, context: C) -> R:
        if not is_sampled():
            powertools.is_cold_start = False  # else a later one is annotated as the first
            return handler(event, context)
        captured: Callable[[E, C], R] = _open_tracer().capture_lambda_handler(
            handler, capture_response=False
        )
        return captured(event, context)

    return traced


def annotate(key: str, value: str) -> None:
    """Make the trace of this invocation searchable by `key`, if it is sampled."""
    if is_sampled():
        _open_tracer().put_annotation(key, value)


def is_sampled() -> bool:
    """Return whether X-Ray samples this invocation."""
    return "Sampled=1" in os.environ.get(HEADER, "").split(";")


@cache
def _open_tracer() -> Tracer:
    # No auto-patching: a subsegment for each of a task's thousands of calls is useless.
    return Tracer(service=SERVICE, auto_patch=False)
