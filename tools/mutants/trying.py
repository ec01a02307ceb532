"""Run the tests of a module on one mutant, in a forked process, with limits.

The parent imports pytest and the libraries, never the package. So a child needs one second and a
new interpreter five. Children see a copy of the package, and so do the processes that tests start,
because the copy is first on ``PYTHONPATH``.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import resource
import shutil
import signal
import sys
import time
import traceback
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence

PACKAGE = "s3unzip"
PRELOADED = (
    *("boto3", "botocore.session", "isal.isal_zlib", "moto", "msgspec", "numpy", "obstore"),
    *("hypothesis", "Crypto.Cipher.AES", "rich.console", "click", "urllib3", "backports.zstd"),
)
# pytest warns that it cannot rewrite the assertions of a plugin that is already imported.
PRELOADED_IS_RIGHT = ("-W", "ignore::pytest.PytestAssertRewriteWarning")
MAX_EXAMPLES = 30  # of a hypothesis test that does not set its own number
MAX_DATA = 6 << 30  # bytes that a child may allocate
MAX_SLOWER = 3.0  # times the CPU seconds of the tests without a mutant
SPARE_CPU_SECONDS = 5.0
MAX_WAITS = 10.0  # times their seconds on the clock, for the machine may be busy
MAX_IDLE_SECONDS = 30.0  # without CPU: the tests wait for what never comes
PROCESSES = Path("/proc")


class TestsError(Exception):
    """The tests cannot judge mutants; the message has what they printed."""

    __test__ = False


class Verdict(StrEnum):
    """The result of a mutant."""

    KILLED = "killed"
    SURVIVED = "survived"
    NO_TESTS = "no tests"


@dataclass(frozen=True, slots=True)
class Limits:
    """How many seconds the tests may take: on the clock, of CPU in one process, and without CPU."""

    wall: float
    cpu: float
    idle: float = MAX_IDLE_SECONDS


@dataclass(frozen=True, slots=True)
class Trial:
    """What the tests said, and in how many seconds: on the clock, and of CPU."""

    verdict: Verdict
    wall: float
    cpu: float

    def limits(self) -> Limits:
        """Return the limits of a mutant whose tests take this without it."""
        cpu = self.cpu * MAX_SLOWER + SPARE_CPU_SECONDS
        return Limits((self.wall + cpu) * MAX_WAITS, cpu)


class CopiedPackage:
    """A copy of the package, in which one module at a time has a fault."""

    def __init__(self, original: Path, folder: Path) -> None:
        """Copy `original`, the folder that holds the package, to `folder`.

        Raises:
            OSError: the copy could not be made.
        """
        self.folder = folder
        shutil.rmtree(folder, ignore_errors=True)
        skipped = shutil.ignore_patterns("__pycache__")
        shutil.copytree(original / PACKAGE, folder / PACKAGE, ignore=skipped)

    def write(self, module: str, source: bytes) -> None:
        """Replace a module, whose path below the package is `module`.

        Its byte code goes: Python would match it by time and size, which may be the same.
        """
        path = self.folder / PACKAGE / module
        path.write_bytes(source)
        cached = path.parent / "__pycache__"
        for stale in cached.glob(f"{path.stem}.*.pyc"):
            stale.unlink()


class _Settings:
    """A plugin: no shrinking, for only the verdict counts."""

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self) -> None:
        """Derive a profile from the one that tests/conftest.py has loaded."""
        phases = (
            hypothesis.Phase.explicit,
            hypothesis.Phase.reuse,
            hypothesis.Phase.generate,
        )
        hypothesis.settings.register_profile(
            "mutants", hypothesis.settings.default, max_examples=MAX_EXAMPLES, phases=phases
        )
        hypothesis.settings.load_profile("mutants")


def preload() -> None:
    """Import the libraries, so that children have them already."""
    for name in PRELOADED:
        try:
            importlib.import_module(name)
        except ImportError:
            continue  # a library that has gone only costs time
    if any(name.partition(".")[0] == PACKAGE for name in sys.modules):
        raise RuntimeError(f"{PACKAGE} was imported before the fork: mutants would not be seen")


def run_tests(tests: Sequence[str], copied: Path, root: Path, limits: Limits, log: Path) -> Trial:
    """Run `tests` (arguments of pytest) on the package in `copied` until the first failure.

    Tests that take longer than `limits` are a failure: a mutant may loop or wait for ever.
    """
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        _be_child(tests, copied, root, limits, log)
    status, cpu = _wait(child, began + limits.wall, limits.idle)
    took = time.monotonic() - began
    if status == pytest.ExitCode.OK:
        return Trial(Verdict.SURVIVED, took, cpu)
    if status in {pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.NO_TESTS_COLLECTED}:
        return Trial(Verdict.NO_TESTS, took, cpu)
    return Trial(Verdict.KILLED, took, cpu)


def _be_child(tests: Sequence[str], copied: Path, root: Path, limits: Limits, log: Path) -> None:
    """Run pytest and leave; this never returns."""
    status: int = pytest.ExitCode.INTERNAL_ERROR
    try:
        os.setsid()
        cpu = int(limits.cpu) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu))
        resource.setrlimit(resource.RLIMIT_DATA, (MAX_DATA, MAX_DATA))
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for stream in (1, 2):
            os.dup2(output, stream)
        sys.path[:0] = [str(copied), str(root)]
        os.environ["PYTHONPATH"] = os.pathsep.join([str(copied), str(root)])
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
        os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = str(copied.parent / "hypothesis")
        sys.dont_write_bytecode = True
        quiet = ("-x", "-q", "-p", "no:cacheprovider", "--hypothesis-seed=0", *PRELOADED_IS_RIGHT)
        status = pytest.main([*quiet, "--rootdir", str(root), *tests], plugins=[_Settings()])
    finally:
        traceback.print_exc()  # it says None where all went well
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _wait(child: int, until: float, max_idle: float) -> tuple[int | None, float]:
    """Return the child's exit code and CPU seconds; end all that it started.

    The code is None where the time was over, or where nothing has worked for `max_idle` seconds.
    """
    pause = 0.01
    used, active = 0, time.monotonic()
    while True:
        done, status, usage = os.wait4(child, os.WNOHANG)
        now = time.monotonic()
        before, used = used, _count_ticks(child)
        if used != before or used == 0:  # 0: this system does not say
            active = now
        if done or now > until or now - active > max_idle:
            break
        time.sleep(pause)
        pause = min(0.1, pause * 1.5)
    with contextlib.suppress(ProcessLookupError):  # all of them have ended
        os.killpg(child, signal.SIGKILL)
    if not done:
        os.wait4(child, 0)
        return None, usage.ru_utime + usage.ru_stime
    return os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime


def _count_ticks(session: int) -> int:
    """Return the clock ticks of CPU that the processes of a session have used; 0 without Linux.

    A process that is ready to run counts as one that used some: the machine may be busy.
    """
    ticks = 0
    for stat in PROCESSES.glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        if int(fields[3]) == session:  # proc_pid_stat(5): field 6; state is 3, utime 14, stime 15
            ticks += int(fields[11]) + int(fields[12])
            ticks += time.monotonic_ns() if fields[0] == "R" else 0
    return ticks
