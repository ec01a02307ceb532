"""Messages that ask for nested archives: what is queued is read back, and nothing beyond."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from msgspec import structs

from s3unzip.aws.environment import LambdaConfig, read_worker
from s3unzip.aws.events import NESTED, read_requests
from s3unzip.errors import UsageError
from s3unzip.model import Budget, Location, Options, Request
from s3unzip.settings import Variable

REQUEST = Request(
    Location("s3", "members", "out/a/inner.zip"),
    Location("s3", "members", "out/a/inner/"),
    Options(key_template="{member}", nested_depth=1, nested_budget=Budget(1, 2, 3)),
)


def worker() -> LambdaConfig:
    """Return a worker whose environment opens archives two levels deep."""
    return read_worker(
        {
            Variable.WORK_BUCKET: "work",
            Variable.DESTINATION: "s3://members/out/",
            Variable.TRIGGER_BUCKET: "arrivals",
            Variable.OPTIONS: json.dumps({"nested_depth": 2}),
        }
    )


def body(request: Request) -> str:
    """Return the message of a request."""
    return json.dumps({NESTED: msgspec.to_builtins(request)})


def test_is_read_back() -> None:
    """A request is unchanged after its way through a message, and gets the message's time."""
    (read,) = read_requests(body(REQUEST), worker(), 5.0)
    assert read == structs.replace(REQUEST, received_time=5.0)


@pytest.mark.parametrize(
    "changes",
    [
        {"source": Location("s3", "other", "out/a/inner.zip")},
        {"source": Location("s3", "members", "elsewhere/inner.zip")},
        {"source": Location("https", "members", "out/a/inner.zip")},
        {"destination": Location("s3", "arrivals", "out/")},
        {"destination": Location("s3", "members", "")},
        {"options": Options(nested_depth=1)},
        {"options": Options(nested_depth=2, nested_budget=Budget(1, 2, 3))},
        {"options": Options(nested_depth=-1, nested_budget=Budget(1, 2, 3))},
    ],
)
def test_nothing_beyond(changes: dict[str, Any]) -> None:
    """Other buckets and prefixes, more depth, or no budget are refused."""
    with pytest.raises(UsageError, match="nested archive"):
        list(read_requests(body(structs.replace(REQUEST, **changes)), worker(), 0.0))


def test_no_request_at_all() -> None:
    """A message that only looks like one is one clear line."""
    with pytest.raises(UsageError, match="nested archive"):
        list(read_requests(json.dumps({NESTED: {"source": 1}}), worker(), 0.0))
