"""In which order the tests are collected, and in which they run."""

from itertools import accumulate
from pathlib import Path

import pytest

TESTS = Path(__file__).parent

# Modules that take nine seconds or more, the longest first. They begin first, so that no process
# ends long after the others; pytest-xdist's own order begins with those that have the most tests.
FIRST = (
    "docs/test_deploy.py",
    "acceptance/test_set.py",
    "infra/test_deployment.py",
    "infra/test_cdk_cli.py",
    "docs/test_commands.py",
    "e2e/",
    "faults/",
    "functional/",
    "asset/",
    "unit/deflate/test_split.py",
    "browser/",
    "unit/handlers/",
    "infra/test_linters.py",
    "strict/",
    "docs/",
    "unit/operate/",
    "corpus/",
    "simulation/",
    "tools/test_mutants.py",
    "fuzz/",
    "contract/",
    "unit/zip/",
    "unit/local/",
)


def share_of(worker: int, workers: int) -> list[str]:
    """Return all test modules, beginning where the share of one process begins.

    pytest rewrites the assertions of a module at its first import, and keeps that on the disk.
    From a clean checkout it takes 6 s of processor time. Processes that all begin at the same
    module would each do it; now each does its share, and finds the others' on the disk.

    Args:
        worker: number of the process, from 0.
        workers: how many there are.
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
