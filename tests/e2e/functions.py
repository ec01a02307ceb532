"""Changes to deployed functions for the time of a test, as an operator makes them."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from embedded.pipeline import DeployedPipeline


def find_function(pipeline: DeployedPipeline, name: str) -> dict[str, Any]:
    """Return the configuration of the function `name`: plan, planner, link, extract or report."""
    handler = f"s3unzip.handlers.{name}.handler"
    listed = pipeline.client("lambda").list_functions()["Functions"]
    (found,) = (one for one in listed if one["Handler"] == handler)
    return dict(found)


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
    pipeline: DeployedPipeline, name: str, changes: Mapping[str, str]
) -> Iterator[None]:
    """Change environment variables of a function for a while."""
    found = find_function(pipeline, name)
    function, kept = found["FunctionName"], found["Environment"]["Variables"]
    update = pipeline.client("lambda").update_function_configuration
    update(FunctionName=function, Environment={"Variables": {**kept, **changes}})
    try:
        yield
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
