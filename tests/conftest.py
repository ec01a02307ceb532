"""What holds for every test, and what a test must leave as it found it."""

import gc
import logging
import os
import random
import shutil
import signal
import sys
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.collecting import share_of, sort_tests

# Machines are shared and noisy: how long an example takes says nothing about the code.
settings.register_profile("suite", deadline=None)
settings.load_profile("suite")

# With this variable a tool that is missing is a failure: a hosted run must not stay green
# because its browser or its servers went away.
REQUIRE_TOOLS = "S3UNZIP_REQUIRE_TOOLS"
MISSING = ("not installed", "no embedded AWS", "no CDK CLI", "no CPython")

# Objects more before a collection of the youngest, of those between, and of all (module `gc`):
# 200,000 new objects before a whole collection are some 30 MB.
RARELY = (2_000, 10, 10)

OURS = "PYTEST_CURRENT_TEST"  # pytest names the test in progress in it
# `signal.getsignal` makes an enumeration of each answer, with an exception where it is a function.
# All signals are asked for twice a test.
_get_handler = vars(sys.modules["_signal"])["getsignal"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that mixes the tests."""
    parser.addoption("--shuffle", type=int, metavar="SEED", help="run the tests in random order")


def pytest_configure(config: pytest.Config) -> None:
    """Divide the work of a collection."""
    process: dict[str, Any] | None = getattr(config, "workerinput", None)
    if process is not None and config.args_source is pytest.Config.ArgsSource.TESTPATHS:
        number = int(process["workerid"].removeprefix("gw"))
        config.args[:] = share_of(number, process["workercount"])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the slow modules first; or, with a seed, mix all tests: none may need another."""
    sort_tests(items)
    seed: int | None = config.getoption("--shuffle")
    if seed is not None:
        random.Random(seed).shuffle(items)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Collect garbage less often: it took a tenth of the processor time of some tests."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*RARELY)


def take_state() -> dict[str, Any]:
    """Return the state of this process that tests share, by the name of each thing."""
    state = {f"variable {name}": value for name, value in os.environ.items() if name != OURS}
    # pytest-timeout sets the handler of SIGALRM.
    signals = signal.valid_signals() - {signal.SIGALRM, signal.SIGKILL, signal.SIGSTOP}
    return {
        **state,
        **{f"handler of signal {number:d}": _get_handler(number) for number in signals},
        # What a simulation may exchange.
        "time.sleep": time.sleep,
        "time.time": time.time,
        "time.monotonic": time.monotonic,
        "threading.Thread": threading.Thread,
        "working folder": Path.cwd(),
        "sys.path": list(sys.path),
    }


def find_left(before: dict[str, Any]) -> list[str]:
    """Return the names of what has changed."""
    now = take_state()
    return sorted(name for name in before.keys() | now if before.get(name) != now.get(name))


@contextmanager
def product_logger_kept() -> Iterator[None]:
    """Set the product's logger back: a level that one test sets would hide the lines of others."""
    logger = logging.getLogger("s3unzip")
    kept = vars(logger) | {"handlers": [*logger.handlers], "filters": [*logger.filters]}
    yield
    vars(logger).update(kept)
    logger.setLevel(kept["level"])  # which forgets what was decided by the other


@pytest.fixture(autouse=True, scope="session")
def process_is_as_a_user_has_it(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Let the product's log go to the output that pytest keeps, and programs react to signals.

    If a conftest is the first to import a handler, pytest keeps no output yet. Background jobs
    inherit to ignore SIGINT, and those of nohup SIGHUP. Records of runs stay out of the real home,
    and what this machine knows of AWS out of the tests.
    """
    home = tmp_path_factory.mktemp("home")
    for name in [name for name in os.environ if name.startswith("AWS_")] + ["NO_COLOR"]:
        os.environ.pop(name, None)
    os.environ |= {
        "S3UNZIP_HOME": str(home),
        "AWS_CONFIG_FILE": str(home / "no-config"),
        "AWS_SHARED_CREDENTIALS_FILE": str(home / "no-credentials"),
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    for handler in logging.getLogger("s3unzip").handlers:
        if isinstance(handler, logging.StreamHandler):
            handler.setStream(sys.stdout)
    for number in (signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """Fail a test that leaves the process changed, and set back what is no fault of the test.

    boto3's default session keeps the credentials of the first test that used it, and the import of
    a handler sets up the product's logger.
    """
    before = take_state()
    with product_logger_kept():
        yield
    if "boto3" in sys.modules:
        vars(sys.modules["boto3"])["DEFAULT_SESSION"] = None
    left = find_left(before)
    if left:
        pytest.fail(f"this test left changed: {', '.join(left)}", pytrace=False)


@pytest.fixture(scope="session")
def uv() -> Path:
    """Return the path of uv, which make installs if the machine has none."""
    own = Path(__file__).parent.parent / ".uv" / "bin" / "uv"
    found = own if own.exists() else shutil.which("uv")
    if found is None:
        pytest.skip("uv is not installed: make installs it")
    return Path(found)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn a test that was skipped for want of a tool into a failure, where that is asked for."""
    report = yield
    if report.skipped and os.environ.get(REQUIRE_TOOLS) and isinstance(report.longrepr, tuple):
        reason = report.longrepr[2]
        if any(word in reason for word in MISSING):
            report.outcome = "failed"
            report.longrepr = f"{REQUIRE_TOOLS} is set: {reason}"
    return report
