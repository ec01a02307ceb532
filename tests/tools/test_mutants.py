"""The runner of mutants: what it makes, what it tries, and what it keeps."""

from __future__ import annotations

import ast
import subprocess
import sys
from textwrap import dedent
from typing import TYPE_CHECKING

import pytest

from tests.docs.commands import ROOT
from tools.mutants.__main__ import is_current, list_mutants
from tools.mutants.mutate import choose, make_mutants
from tools.mutants.record import (
    Result,
    Target,
    digest_source,
    digest_tests,
    find_unexplained,
    read_record,
    read_targets,
    write_record,
)

if TYPE_CHECKING:
    from pathlib import Path

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


def test_a_mutant_is_python_and_differs_in_one_place() -> None:
    """Applied, it parses, and only its expression has changed."""
    original = ast.dump(ast.parse(SOURCE))
    for mutant in make_mutants(SOURCE):
        changed = mutant.apply(SOURCE.encode())
        assert ast.dump(ast.parse(changed)) != original
        assert changed.startswith(SOURCE.encode()[: mutant.start])
        assert changed.endswith(SOURCE.encode()[mutant.end :])


def test_names_are_unique_and_survive_edits_elsewhere() -> None:
    """Equal expressions are numbered; a line more above changes no name."""
    twice = "def f(a):\n    a = a + 1\n    b = a + 1\n"
    names = [one.name for one in make_mutants(twice)]
    assert len(set(names)) == len(names) == 4
    assert names == [one.name for one in make_mutants("import os\n\n" + twice)]


def test_characters_beyond_ascii_keep_their_place() -> None:
    """Positions are bytes, as Python's parser counts them."""
    (mutant,) = make_mutants("def f(a):\n    return 'é', a < 'ü'\n")
    assert mutant.apply("def f(a):\n    return 'é', a < 'ü'\n".encode()).decode() == (
        "def f(a):\n    return 'é', (a <= 'ü')\n"
    )


def test_fewer_are_chosen_out_of_more() -> None:
    """A smaller number is a part of a larger one, in the order of lines."""
    every = make_mutants(SOURCE)
    four, six = choose(every, 4), choose(every, 6)
    assert len(four) == 4
    assert set(four) < set(six)
    assert [one.start for one in six] == sorted(one.start for one in six)
    assert choose(every, 1_000) == every


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A checkout with one module and one test."""
    package = tmp_path / "functions" / "s3unzip"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "clamp.py").write_text("def clamp(value):\n    return value if value > 0 else 0\n")
    tests = tmp_path / "tests"
    tests.mkdir()
    (tests / "test_clamp.py").write_text(
        dedent("""\
        from s3unzip.clamp import clamp

        def test_clamp():
            assert clamp(2) == 2
            assert clamp(-2) == 0
        """)
    )
    return tmp_path


TARGET = Target("clamp.py", ("tests/test_clamp.py",), 10)


def test_digests_know_what_matters(root: Path) -> None:
    """Comments, docstrings and imports do not change a module's digest; code and tests do."""
    module = root / "functions" / "s3unzip" / "clamp.py"
    source, tests = digest_source(TARGET, root), digest_tests(TARGET, root)
    text = module.read_text()
    module.write_text('"""Doc."""\nimport os\n' + text + "# remark\n")
    assert digest_source(TARGET, root) == source
    module.write_text(text.replace("else 0", "else 1"))
    assert digest_source(TARGET, root) != source
    (root / "tests" / "test_clamp.py").write_text("def test_nothing(): pass\n")
    assert digest_tests(TARGET, root) != tests


def run_in(root: Path, code: str) -> str:
    """Run code in an interpreter that has not imported the package."""
    done = subprocess.run(
        [sys.executable, "-c", dedent(code), str(root)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_mutants_are_killed_or_survive(root: Path) -> None:
    """A fault that the tests see is killed, one at an edge they do not look at survives."""
    told = run_in(
        root,
        """
        import sys
        from pathlib import Path
        from tools.mutants.mutate import make_mutants
        from tools.mutants.trying import CopiedPackage, Limits, run_tests

        root = Path(sys.argv[1])
        source = (root / "functions/s3unzip/clamp.py").read_text()
        copied = CopiedPackage(root / "functions", root / "copy" / "package")

        def verdict(cpu=60.0, wall=300.0, idle=300.0, tests=("tests/test_clamp.py",)):
            tests = [str(root / test) for test in tests]
            limits = Limits(wall, cpu, idle)
            trial = run_tests(tests, copied.folder, root, limits, root / "log")
            return trial.verdict.value + " late" * (trial.wall > limits.wall)

        print(verdict())
        for mutant in make_mutants(source):
            copied.write("clamp.py", mutant.apply(source.encode()))
            print(verdict(), mutant.name)
        copied.write("clamp.py", b"def clamp(value):\\n    while True: pass\\n")
        print(verdict(cpu=1.0))
        print(verdict(wall=2.0))
        waits = "import threading\\n\\ndef clamp(value):\\n    threading.Event().wait()\\n"
        copied.write("clamp.py", waits.encode())
        print(verdict(idle=1.0))
        copied.write("clamp.py", source.encode())
        print(verdict(tests=["tests/none.py"]))
        """,
    )
    assert told.splitlines() == [
        "survived",
        "survived clamp: value > 0 -> value >= 0",
        "survived clamp: 0 -> 1",
        "killed clamp: 0 -> 1 (2)",
        "killed",
        "killed late",
        "killed",
        "no tests",
    ]


def result(target: Target, root: Path, tried: int, *survived: str) -> Result:
    """Return a result of the module as it is."""
    return Result(
        digest_source(target, root), digest_tests(target, root), tried, target.limit, survived
    )


def test_what_was_killed_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Survivors are, and those that a larger limit adds; all of them where the code changed."""
    module = "planning/cutting.py"
    target = Target(module, ("tests/unit/planning",), 5)
    source = (ROOT / "functions" / "s3unzip" / module).read_text()
    five = [one.name for one in choose(make_mutants(source), 5)]
    known = result(target, ROOT, 5, five[2])
    assert not is_current(Result("other", known.tests, 5, 5, ()), target)
    assert is_current(known, target)
    chosen, left = list_mutants(target, source, known)
    assert [one.name for one in chosen] == five
    assert [one.name for one in left] == [five[2]]
    larger = Target(module, target.tests, 8)
    assert not is_current(known, larger)
    chosen, left = list_mutants(larger, source, known)
    assert (len(chosen), len(left)) == (8, 4)
    chosen, left = list_mutants(target, source, Result("other", "", 5, 5, ()))
    assert chosen == left


def test_every_survivor_has_its_reason(tmp_path: Path) -> None:
    """A survivor without a reason is reported, and a reason without a survivor."""
    reasons = tmp_path / "survivors.toml"
    results = {"a.py": Result("", "", 3, 3, ("f: 1 -> 2", "g: x -> y"))}
    reasons.write_text('["a.py"]\n"f: 1 -> 2" = "why"\n')
    (fault,) = find_unexplained(results, reasons)
    assert "`g: x -> y`" in fault
    reasons.write_text(
        '["a.py"]\n"f: 1 -> 2" = "why"\n"g: x -> y" = "why"\n"h" = "why"\n["b.py"]\n"x" = "why"\n'
    )
    told = find_unexplained(results, reasons)
    assert [fault.split(":")[0] for fault in told] == ["a.py", "b.py"]


def test_results_are_read_as_they_are_written(tmp_path: Path) -> None:
    """Nothing is lost in the record; without one there are no results."""
    path = tmp_path / "record.json"
    assert read_record(path) == {}
    results = {"b.py": Result("s", "t", 3, 4, ("x",)), "a.py": Result("s", "t", 1, 1, ())}
    write_record(results, path)
    assert read_record(path) == results


def test_the_list_names_what_exists() -> None:
    """Every module and test of targets.toml exists."""
    for target in read_targets().values():
        assert (ROOT / "functions" / "s3unzip" / target.module).is_file()
        for test in target.tests:
            assert (ROOT / test.removeprefix("--deselect=").partition("::")[0]).exists()
        assert target.limit > 0
