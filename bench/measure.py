"""Seconds, CPU and memory of a command, and how figures are printed."""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

RUNS = 3
BEGAN = time.perf_counter()


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one command."""

    wall: float  # seconds
    cpu: float  # seconds, its children included
    rss_mb: float  # the largest of its processes
    output: str


def run_command(command: Sequence[str], env: Mapping[str, str] | None = None) -> Cost:
    """Run a command and return its cost and its standard output."""
    environment = {**os.environ, **(env or {})}
    # Byte code is kept between runs, as for any user, with any setting of this shell.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    hear, tell = os.pipe()
    started = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.launch", str(tell), *command],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        pass_fds=(tell,),
    )
    os.close(tell)
    output, _ = process.communicate()
    wall = time.perf_counter() - started
    with os.fdopen(hear) as told:
        said = told.read()
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command, output)
    cpu, peak = json.loads(said)
    return Cost(wall, cpu, peak, output)


def run_s3unzip(*words: str) -> tuple[Cost, dict[str, Any]]:
    """Run a command of s3unzip; return its cost and what it prints as JSON."""
    cost = run_command([sys.executable, "-m", "s3unzip", *words, "--json"])
    return cost, json.loads(cost.output)


def median(values: Sequence[float]) -> float:
    """Return the median."""
    return statistics.median(values)


def print_step(text: str) -> None:
    """Print the next step and the second of the bench."""
    print(f"{time.perf_counter() - BEGAN:5.0f} s  {text}", flush=True)


def print_figure(name: str, value: float, unit: str) -> None:
    """Print one figure in the form that is tracked over time."""
    print(f"BENCH {name} {value:.4g} {unit}", flush=True)
