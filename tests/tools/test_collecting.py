"""Each process collects all tests, beginning at another module, and all agree on their order."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.collecting import TESTS, share_of, sort_tests


@pytest.mark.parametrize("workers", [1, 2, 3, 8])
def test_all_modules_are_in_each_order(workers: int) -> None:
    """The processes have the same modules, in turns that begin far from each other."""
    orders = [share_of(worker, workers) for worker in range(workers)]
    assert {tuple(sorted(order)) for order in orders} == {tuple(sorted(orders[0]))}
    assert set(orders[0]) == {str(path) for path in TESTS.rglob("test_*.py")}
    begins = sorted(orders[0].index(order[0]) for order in orders)
    assert begins[0] == 0
    assert len(set(begins)) == workers


def test_a_process_more_collects_all() -> None:
    """One that replaces a process that ended has a number beyond their count."""
    assert share_of(5, 3) == share_of(0, 3)


def test_the_order_does_not_depend_on_the_collection() -> None:
    """Slow modules come first, and tests of one module stay as they are written."""
    names = ["unit/test_model.py", "e2e/test_direct.py", "docs/test_deploy.py", "docs/test_json.py"]
    items: list[Any] = [
        SimpleNamespace(path=TESTS / name, line=n) for name in names for n in (1, 2)
    ]
    found = []
    for seed in range(9):
        random.Random(seed).shuffle(items)
        items.sort(key=lambda item: item.line)
        sort_tests(items)
        found.append([(Path(item.path).relative_to(TESTS).as_posix(), item.line) for item in items])
    order = [names[2], names[1], names[3], names[0]]
    assert all(one == [(name, line) for name in order for line in (1, 2)] for one in found)
