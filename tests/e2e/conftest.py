"""The synthesized stack on MiniStack, and changes to its functions for the time of a test.

An operator makes such changes. The tests are skipped where MiniStack is not installed.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from embedded.deploy import Assembly, start_aws
from embedded.pipeline import DeployedPipeline
from tests.support import assemblies, processes, servers, zips


@pytest.fixture(scope="session")
def assembly(tmp_path_factory: pytest.TempPathFactory) -> Assembly:
    return assemblies.for_embedded_aws(tmp_path_factory, "dev")


@pytest.fixture(scope="module")
def pipeline(assembly: Assembly) -> Iterator[DeployedPipeline]:
    """The stack deployed once a module; its retries wait a fiftieth of their time."""
    with start_aws(wait_scale=0.02) as aws:
        yield DeployedPipeline.create(assembly, aws.environment)


@pytest.fixture
def operator(pipeline: DeployedPipeline, tmp_path: Path) -> processes.Program:
    program = processes.Program(tmp_path)
    program.variables |= pipeline.variables
    return program


T = TypeVar("T")


def find_function(pipeline: DeployedPipeline, name: str) -> Any:
    """Return the configuration of the function `name`: intake, plan, extract or settle."""
    listed = pipeline.client("lambda").list_functions()["Functions"]
    return next(one for one in listed if one["Handler"] == f"s3unzip.aws.{name}.handler")


def members_of(count: int) -> list[zips.Entry]:
    """Return so many small members in folders."""
    return [
        zips.Entry(f"folder {n % 7}/größe-{n:04}.json", json.dumps({"n": n}).encode() * 30)
        for n in range(count)
    ]


@contextmanager
def with_settings(pipeline: DeployedPipeline, name: str, **changes: object) -> Iterator[None]:
    """Change what Lambda's UpdateFunctionConfiguration knows of a function for a while."""
    configuration = find_function(pipeline, name)
    update = pipeline.client("lambda").update_function_configuration
    update(FunctionName=configuration["FunctionName"], **changes)
    try:
        yield
    finally:
        update(**{setting: configuration[setting] for setting in ("FunctionName", *changes)})


@contextmanager
def with_variables(
    pipeline: DeployedPipeline, name: str, changes: Mapping[str, str], *, idle: bool = True
) -> Iterator[None]:
    """Change environment variables of a function for a while.

    A change ends the function's processes. So what is left of a message is awaited, if `idle`.
    """
    variables = find_function(pipeline, name)["Environment"]["Variables"]
    with with_settings(pipeline, name, Environment={"Variables": {**variables, **changes}}):
        yield
        if idle:
            await_value(pipeline, lambda: pipeline.waiting() == 0)


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


@contextmanager
def without_events(pipeline: DeployedPipeline) -> Iterator[None]:
    """Let no event of an archive reach the queue for a while."""
    events = pipeline.client("events")
    (rule,) = (one["Name"] for one in events.list_rules()["Rules"] if "ArchivePut" in one["Name"])
    events.disable_rule(Name=rule)
    try:
        yield
    finally:
        events.enable_rule(Name=rule)


def await_value(pipeline: DeployedPipeline, find: Callable[[], T | None]) -> T:
    """Return what `find` returns as soon as that is true."""
    for _ in servers.looks():
        if value := find():
            return value
    raise AssertionError(pipeline.logs())
