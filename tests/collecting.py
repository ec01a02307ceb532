"""In which order the tests are collected, and in which they run."""

from itertools import accumulate
from pathlib import Path

import pytest

TESTS = Path(__file__).parent

# Modules that take ten seconds or more, the longest first, then the rest of slow folders. They
# begin first, so that no process ends long after the others: pytest-xdist gives a process its next
# module two tests before the end of the last. Measured by `make test` with `--durations`.
FIRST = (
    "docs/test_deploy.py",
    "docs/test_commands.py",
    "fuzz/",
    "faults/",
    "acceptance/",
    "unit/planning/test_cut.py",
    "functional/test_places.py",
    "functional/test_processes.py",
    "infra/test_deployment.py",
    "e2e/",
    "functional/",
    "asset/",
    "contract/test_s3_faults.py",
    "simulation/",
    "unit/stores/test_clients.py",
    "unit/operate/",
    "corpus/",
    "docs/",
    "browser/",
    "infra/",
    "tools/",
    "contract/",
    "strict/",
)


def share_of(worker: int, workers: int) -> list[str]:
    """Return all test modules, beginning where the share of process `worker` of `workers` begins.

    pytest rewrites the assertions of a module at its first import, and keeps that on the disk.
    From a clean checkout it takes 6 s of processor time. Processes that all begin at the same
    module would each do it; now each does its share, and finds the others' on the disk.
    """
    modules = sorted(TESTS.rglob("test_*.py"))
    ends = list(accumulate(module.stat().st_size for module in modules))
    begin = sum(end * workers <= ends[-1] * worker for end in ends)
    return [str(module) for module in (*modules[begin:], *modules[:begin])]


def sort_tests(items: list[pytest.Item]) -> None:
    """Put the modules of FIRST first, however they were collected: all processes must agree."""
    places = {path: _place(path) for path in {item.path for item in items}}
    items.sort(key=lambda item: places[item.path])


def _place(path: Path) -> tuple[int, str]:
    # Tests of this configuration have modules elsewhere.
    name = path.relative_to(TESTS).as_posix() if path.is_relative_to(TESTS) else str(path)
    return next((n for n, part in enumerate(FIRST) if name.startswith(part)), len(FIRST)), name
