"""Changes to deployed functions for the time of a test, as an operator makes them."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar

from embedded.pipeline import DeployedPipeline
from tests.support.servers import looks
from tests.support.zips import Entry

T = TypeVar("T")


def find_function(pipeline: DeployedPipeline, name: str) -> dict[str, Any]:
    """Return the configuration of the function `name`: intake, plan, extract or settle."""
    handler = f"s3unzip.aws.{name}.handler"
    listed = pipeline.client("lambda").list_functions()["Functions"]
    (found,) = (one for one in listed if one["Handler"] == handler)
    return dict(found)


def members_of(count: int) -> list[Entry]:
    """Return so many small members in folders."""
    return [
        Entry(f"folder {n % 7}/größe-{n:04}.json", json.dumps({"n": n}).encode() * 30)
        for n in range(count)
    ]


@contextmanager
def with_handler(pipeline: DeployedPipeline, name: str, handler: str) -> Iterator[None]:
    """Give a function another handler for a while."""
    kept = find_function(pipeline, name)
    update = pipeline.client("lambda").update_function_configuration
    update(FunctionName=kept["FunctionName"], Handler=handler)
    try:
        yield
    finally:
        update(FunctionName=kept["FunctionName"], Handler=kept["Handler"])


@contextmanager
def with_variables(
    pipeline: DeployedPipeline, name: str, changes: Mapping[str, str], *, idle: bool = True
) -> Iterator[None]:
    """Change environment variables of a function for a while.

    A change ends the function's processes. So what is left of a message is awaited, if `idle`.
    """
    found = find_function(pipeline, name)
    function, kept = found["FunctionName"], found["Environment"]["Variables"]
    update = pipeline.client("lambda").update_function_configuration
    update(FunctionName=function, Environment={"Variables": {**kept, **changes}})
    try:
        yield
        if idle:
            await_value(pipeline, lambda: pipeline.waiting() == 0)
    finally:
        update(FunctionName=function, Environment={"Variables": kept})


@contextmanager
def without_workers(pipeline: DeployedPipeline, name: str) -> Iterator[None]:
    """Let Lambda throttle every call of a function for a while."""
    functions = pipeline.client("lambda")
    function = find_function(pipeline, name)["FunctionName"]
    functions.put_function_concurrency(FunctionName=function, ReservedConcurrentExecutions=0)
    try:
        yield
    finally:
        functions.delete_function_concurrency(FunctionName=function)


@contextmanager
def with_all_variables(pipeline: DeployedPipeline, changes: Mapping[str, str]) -> Iterator[None]:
    """Change environment variables of all functions for a while."""
    with ExitStack() as stack:
        for name in ("intake", "plan", "extract", "settle"):
            stack.enter_context(with_variables(pipeline, name, changes))
        yield


def await_value(pipeline: DeployedPipeline, find: Callable[[], T | None]) -> T:
    """Return what `find` returns as soon as that is true."""
    for _ in looks():
        found = find()
        if found:
            return found
    raise AssertionError(pipeline.logs())
