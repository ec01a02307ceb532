"""What ``--json`` prints: one value a line. docs/reference/*.schema.json describe the values."""

from __future__ import annotations

import sys

from msgspec import Struct

from s3unzip.model import Outcome, encode


class FailedMember(Struct, frozen=True):
    """A line of ``s3unzip show --failures``."""

    task: str  # that the member failed in; "index": the plan
    outcome: Outcome


class Redriven(Struct, frozen=True):
    """What ``s3unzip redrive --env`` did."""

    run: str
    environment: str


class Retried(Struct, frozen=True):
    """What ``s3unzip retry --env`` did."""

    run: str
    environment: str
    tasks: int  # of the new execution; 0: no member failed, nothing was started


class Aborted(Struct, frozen=True):
    """What ``s3unzip abort`` did."""

    run: str
    environment: str | None  # None: the run is one of this machine
    stopped: bool  # whether an execution was running
    uploads: int  # incomplete uploads that were dropped


class RunProgress(Struct, frozen=True, omit_defaults=True):
    """A line of ``s3unzip watch --json``, printed when a figure changes; the report is the last."""

    run: str
    state: str = ""  # of the execution; empty on one machine
    members: int | None = None  # that the run selected; None: its plan is still made
    extracted: int = 0  # by tasks that ended
    unchanged: int = 0  # likewise
    failed: int = 0  # likewise
    bytes_written: int = 0  # likewise
    tasks: int = 0  # of the plan
    tasks_done: int = 0
    scans: int = 0  # of the plan
    scans_done: int = 0
    running: int | None = None  # tasks of the Map at work
    waiting: int | None = None  # likewise
    lost: int | None = None  # likewise: without a result
    throttled: int = 0  # requests
    retries: int = 0  # requests
    first_object: float | None = None  # Unix seconds


def print_json(value: object) -> None:
    """Print a value as one line of JSON on stdout."""
    sys.stdout.write(encode(value).decode() + "\n")
