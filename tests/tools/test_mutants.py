"""The runner of mutants: what it makes, and of which modules."""

from tests.docs.commands import ROOT
from tools.mutants import PACKAGE, make_mutants, read_groups

SOURCE = '''\
"""A module."""
import os
LIMIT = 5

def clamp(value: int, low: int = 0) -> int:
    """Text."""
    if value < low and os.name:
        raise ValueError(f"{value + 1} is below {low - 1}")
    while value:
        log(value)
        value -= 2
        if not value:
            continue
    return min(value, LIMIT) + 1
'''


def test_every_operator_makes_its_mutant() -> None:
    """Each has the function, the expression before and after in its name, and its line."""
    assert [(one.line, one.name) for one in make_mutants(SOURCE)] == [
        (5, "clamp: 0 -> 1"),
        (7, "clamp: value < low and os.name -> value < low or os.name"),
        (7, "clamp: value < low -> value <= low"),
        (8, 'clamp: raise ValueError(f"{value + 1} is below {low - 1}") -> pass'),
        (9, "clamp: value -> not value"),
        (10, "clamp: log(value) -> pass"),
        (11, "clamp: value -= 2 -> value += 2"),
        (11, "clamp: 2 -> 3"),
        (12, "clamp: not value -> value"),
        (13, "clamp: continue -> break"),
        (14, "clamp: min(value, LIMIT) + 1 -> min(value, LIMIT) - 1"),
        (14, "clamp: min(value, LIMIT) -> max(value, LIMIT)"),
        (14, "clamp: 1 -> 2"),
    ]


def test_every_group_has_modules_and_tests() -> None:
    """No pattern of the list is about modules that have gone."""
    for group in read_groups():
        assert group.files(ROOT / "functions" / PACKAGE, [])
        assert all((ROOT / test).exists() for test in group.tests)
        assert group.files(ROOT / "functions" / PACKAGE, ["no/such"]) == []
