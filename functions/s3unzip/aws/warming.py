"""Calls that only start an environment of a function before it is needed.

The state machine makes them (`infra.definition`), so a cold start runs beside other work. Nothing
reads their answer, and an event that Lambda's queue delivers twice does no harm. Lambda gives the
next call of the function to an idle environment (developer guide of Lambda, "Understanding the
Lambda execution environment lifecycle").
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from s3unzip.aws.environment import open_worker

if TYPE_CHECKING:
    from collections.abc import Mapping


def is_warm_up(event: Mapping[str, Any]) -> bool:
    """Say whether a call asks for nothing but an environment."""
    return event.get("warm") is True


def warm_up() -> dict[str, Any]:
    """Read the settings and open what each call needs; return the answer of the call."""
    open_worker()
    return {}
