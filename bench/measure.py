"""Seconds, CPU and memory of a command, and how figures are printed."""

from __future__ import annotations

import contextlib
import ctypes
import os
import statistics
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import resource
    from collections.abc import Mapping, Sequence

RUNS = 3


@dataclass(frozen=True, slots=True)
class Cost:
    """What one command took."""

    wall: float  # seconds
    cpu: float  # seconds, its children included
    rss_mb: float  # the largest of its processes
    output: str


def run_command(command: Sequence[str], env: Mapping[str, str] | None = None) -> Cost:
    """Run a command and return what it took; its standard output is kept.

    Raises:
        subprocess.CalledProcessError: it failed.
    """
    _adopt_orphans()
    others = _children()
    started = time.perf_counter()
    environment = {**os.environ, **(env or {})}
    # Bytecode is kept between runs, as for any user, whatever the shell says here.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command, output)
    usages = [usage, *_reap(_children() - others)]
    cpu = sum(one.ru_utime + one.ru_stime for one in usages)
    return Cost(wall, cpu, max(one.ru_maxrss for one in usages) / 1024, output)


def _adopt_orphans() -> None:
    """Make this process the parent of what its children leave: a fork server's workers.

    Nobody waits for those else, and their CPU would be nobody's.
    """
    pr_set_child_subreaper = 36  # prctl(2)
    ctypes.CDLL(None).prctl(pr_set_child_subreaper, 1, 0, 0, 0)


def _children() -> set[int]:
    """Return the process ids of this process's children."""
    path = Path(f"/proc/self/task/{os.getpid()}/children")
    return {int(pid) for pid in path.read_text().split()}


def _reap(pids: set[int]) -> list[resource.struct_rusage]:
    usages = []
    for pid in pids:
        with contextlib.suppress(ChildProcessError):
            usages.append(os.wait4(pid, 0)[2])
    return usages


def median(values: Sequence[float]) -> float:
    """Return the median."""
    return statistics.median(values)


def print_figure(name: str, value: float, unit: str) -> None:
    """Print one figure in the form that is followed over time."""
    print(f"BENCH {name} {value:.4g} {unit}", flush=True)
