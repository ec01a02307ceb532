"""What holds for every test."""

from __future__ import annotations

import logging
import os
import signal
import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

# Machines are shared and noisy: how long an example takes says nothing about the code.
settings.register_profile("suite", deadline=None)
settings.load_profile("suite")

# With this variable a tool that is missing is a failure: a hosted run must not stay green
# because its browser or its servers went away.
REQUIRE_TOOLS = "S3UNZIP_REQUIRE_TOOLS"
MISSING = ("not installed", "no embedded AWS", "no CDK CLI", "no CPython")

# Modules that take a minute or more. They begin first, so that no process ends long after the
# others; pytest-xdist's own order begins with the modules that have the most tests.
FIRST = (
    "docs/test_deploy.py",
    "acceptance/test_set.py",
    "infra/test_deployment.py",
    "infra/test_cdk_cli.py",
    "docs/test_commands.py",
    "e2e/",
    "faults/",
    "functional/",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the modules of FIRST first."""
    items.sort(
        key=lambda item: next((n for n, part in enumerate(FIRST) if part in item.nodeid), 99)
    )


@pytest.fixture(autouse=True, scope="session")
def default_interrupt() -> None:
    """Let the programs of tests react to SIGINT: a shell's background jobs inherit to ignore it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def no_session_is_kept() -> Iterator[None]:
    """Forget boto3's default session: it keeps the credentials of the first test that used it."""
    yield
    if "boto3" in sys.modules:
        vars(sys.modules["boto3"])["DEFAULT_SESSION"] = None


@pytest.fixture(autouse=True)
def logger_is_as_before() -> Iterator[None]:
    """Restore the product's logger: a level that one test sets would hide the lines of others."""
    logger = logging.getLogger("s3unzip")
    level, handlers, passed_on = logger.level, list(logger.handlers), logger.propagate
    yield
    logger.setLevel(level)
    logger.handlers[:] = handlers
    logger.propagate = passed_on


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn a test that was skipped for want of a tool into a failure, where that is asked for."""
    del item, call
    report = yield
    if report.skipped and os.environ.get(REQUIRE_TOOLS) and isinstance(report.longrepr, tuple):
        reason = report.longrepr[2]
        if any(word in reason for word in MISSING):
            report.outcome = "failed"
            report.longrepr = f"{REQUIRE_TOOLS} is set: {reason}"
    return report
