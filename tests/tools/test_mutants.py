"""The runner of mutants: what it makes, and what it says of tests."""

from pathlib import Path

import pytest

from tests.docs.commands import ROOT
from tools.mutants import PACKAGE, Group, make_mutants, read_groups, try_group

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


def test_a_mutant_that_no_test_sees_survives(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The tested half of a module is killed, the other half is named with its line."""
    (tmp_path / PACKAGE).mkdir()
    (tmp_path / PACKAGE / "__init__.py").touch()
    source = "def seen(a):\n    return a + 1\n\n\ndef unseen(a):\n    return a + a\n"
    (tmp_path / PACKAGE / "half.py").write_text(source)
    tests = tmp_path / "test_half.py"
    tests.write_text("from s3unzip.half import seen\n\ndef test(): assert seen(1) == 2\n")
    group = Group(("half.py",), (f"--rootdir={tmp_path}", "--noconftest", str(tests)), 9)
    assert try_group(group, [], tmp_path, float("inf")) == (2, 3)
    assert "survived: half.py:6: unseen: a + a -> a - a" in capsys.readouterr().out
    assert (tmp_path / PACKAGE / "half.py").read_text() == source
