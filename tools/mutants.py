"""``python -m tools.mutants``: plant small faults into the package, and see whether tests fail.

A mutant is a copy of the package with one fault; the tests of its group must fail on it. A mutant
on which they pass survives, and shows a test that is missing. The operators are the usual few:
comparisons at their edge, arithmetic, logic, conditions, numbers, minimum and maximum, and
statements left out. Annotations, messages of exceptions and f-strings are not touched, because no
test should depend on them. ``tools/mutants.toml`` has the groups.

* ``--only zip/local.py`` (or the beginning of a path) chooses modules;
* ``--seconds`` ends after so long.

The exit code is 1 if tests kill less than 90 % of the mutants.
"""

from __future__ import annotations

import argparse
import ast
import copy
import hashlib
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "s3unzip"
SECONDS = 3_600.0
GROUPS = Path(__file__).with_name("mutants.toml")
MIN_KILLED = 0.9
MAX_DATA = 6 << 30  # bytes that the tests may allocate
MAX_SLOWER = 3.0  # times the seconds of the tests without a mutant
SPARE_SECONDS = 15.0
MAX_TEXT = 90  # characters of an expression in a mutant's name

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
OPPOSITE = {"min": "max", "max": "min", "any": "all", "all": "any"}


@dataclass(frozen=True, slots=True)
class Mutant:
    """One fault: bytes `start` to `end` of the source become `after`."""

    name: str  # function, expression before and after: the same as long as those are
    line: int  # from 1
    start: int
    end: int
    after: str

    def apply(self, source: bytes) -> bytes:
        return source[: self.start] + self.after.encode() + source[self.end :]


def make_mutants(source: str) -> list[Mutant]:
    """Return all mutants of a module, in the order of its lines; their names are unique."""
    finder = _Finder(source)
    finder.visit(ast.parse(source))
    seen: Counter[str] = Counter()
    unique = []
    for mutant in finder.found:
        seen[mutant.name] += 1
        count = seen[mutant.name]
        unique.append(replace(mutant, name=f"{mutant.name} ({count})") if count > 1 else mutant)
    return unique


def choose(mutants: list[Mutant], limit: int) -> list[Mutant]:
    """Return at most `limit` of `mutants`, by the hash of their names, in their order.

    A change elsewhere in the module leaves the choice almost as it is.
    """
    ordered = sorted(mutants, key=lambda one: hashlib.sha256(one.name.encode()).digest())
    chosen = {mutant.name for mutant in ordered[:limit]}
    return [mutant for mutant in mutants if mutant.name in chosen]


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)


def _one_line(text: str) -> str:
    joined = " ".join(text.split())
    return joined if len(joined) <= MAX_TEXT else f"{joined[: MAX_TEXT - 3]}..."


class _Finder(ast.NodeVisitor):
    """Collects the mutants of a tree."""

    def __init__(self, source: str) -> None:
        self.found: list[Mutant] = []
        self._source = source.encode()
        self._starts = [0]
        for line in self._source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self._inside: list[str] = []
        self._functions = 0  # that we are in

    def visit(self, node: ast.AST) -> None:
        if _is_skipped(node):
            return
        # What stands outside of functions are tables: a test of each value would repeat it.
        if self._functions:
            for new in _changed(node):
                self._add(node, new)
            if isinstance(node, ast.If | ast.While | ast.IfExp):
                self._turn(node.test)
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            function = not isinstance(node, ast.ClassDef)
            self._functions += function
            self._inside.append(node.name)
            self._descend(node)
            self._inside.pop()
            self._functions -= function
        elif not isinstance(node, ast.Raise):  # what is in a raise is a message
            self._descend(node)

    def _turn(self, test: ast.expr) -> None:
        """Add a condition's opposite, where no other operator makes it."""
        if isinstance(test, ast.Name | ast.Attribute | ast.Call):
            self._add(test, ast.UnaryOp(ast.Not(), test))

    def _descend(self, node: ast.AST) -> None:
        for name, value in ast.iter_fields(node):
            if name in {"annotation", "returns", "decorator_list", "bases"}:
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    self.visit(child)

    def _add(self, node: ast.AST, new: ast.AST) -> None:
        start, end = self._span(node)
        before = self._source[start:end].decode()
        after = ast.unparse(new)
        if isinstance(new, ast.expr):
            after = f"({after})"
        where = ".".join(self._inside) or "module"
        name = f"{where}: {_one_line(before)} -> {_one_line(ast.unparse(new))}"
        self.found.append(Mutant(name, getattr(node, "lineno", 0), start, end, after))

    def _span(self, node: ast.AST) -> tuple[int, int]:
        line, column = node.lineno, node.col_offset  # type: ignore[attr-defined]  # an expr or stmt
        last, until = node.end_lineno, node.end_col_offset  # type: ignore[attr-defined]
        return self._starts[line - 1] + column, self._starts[last - 1] + until


def _is_skipped(node: ast.AST) -> bool:
    """Tell whether nothing in `node` is to be changed."""
    match node:
        case ast.JoinedStr() | ast.AnnAssign(simple=1, value=None):
            return True
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
        case ast.keyword(arg="strict"):  # of zip: it guards against what does not happen
            return True
    return False


def _changed(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the faulty forms of `node` itself."""
    match node:
        case ast.Compare(ops=ops):
            for index, op in enumerate(ops):
                new = copy.deepcopy(node)
                new.ops[index] = COMPARISONS[type(op)]()
                yield new
        case ast.BinOp(op=op, left=left, right=right) if type(op) in ARITHMETIC:
            if not (_is_text(left) or _is_text(right)):
                yield _with_operator(node, ARITHMETIC[type(op)]())
        case ast.AugAssign(op=op) if type(op) in ARITHMETIC:
            yield _with_operator(node, ARITHMETIC[type(op)]())
        case ast.Call(func=ast.Name(id=name)) if name in OPPOSITE:
            call = copy.deepcopy(node)
            call.func = ast.Name(OPPOSITE[name])
            yield call
        case ast.stmt():
            yield from _changed_flow(node)
        case _:
            yield from _changed_logic(node)


def _changed_logic(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the faulty forms of a condition or a number."""
    match node:
        case ast.BoolOp(op=op):
            yield _with_operator(node, ast.Or() if isinstance(op, ast.And) else ast.And())
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield operand
        case ast.Constant(value=bool() as value):
            yield ast.Constant(not value)
        case ast.Constant(value=int() as value):
            yield ast.Constant(value + 1)


def _changed_flow(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the faulty forms of a statement."""
    match node:
        case ast.Expr(value=ast.Call()) | ast.Raise():
            yield ast.Pass()
        case ast.Continue():
            yield ast.Break()
        case ast.Break():
            yield ast.Continue()


def _with_operator(
    node: ast.BinOp | ast.AugAssign | ast.BoolOp, op: ast.operator | ast.boolop
) -> ast.AST:
    new = copy.deepcopy(node)
    new.op = op
    return new


@dataclass(frozen=True, slots=True)
class Group:
    """Modules whose mutants are tried."""

    modules: tuple[str, ...]  # patterns of paths below the package
    tests: tuple[str, ...]  # arguments of pytest
    limit: int  # at most so many mutants of a module, chosen by their names

    def files(self, package: Path, only: Sequence[str]) -> list[Path]:
        """Return the modules, those whose path begins with one of `only` if there are any."""
        found = sorted({file for pattern in self.modules for file in package.glob(pattern)})
        chosen = tuple(only) or ("",)
        return [one for one in found if one.relative_to(package).as_posix().startswith(chosen)]


def read_groups(path: Path = GROUPS) -> list[Group]:
    """Return the groups of ``mutants.toml``."""
    listed = tomllib.loads(path.read_text(encoding="utf-8"))["group"]
    return [Group(tuple(one["modules"]), tuple(one["tests"]), one["limit"]) for one in listed]


def run_tests(tests: Sequence[str], folder: Path, seconds: float) -> tuple[int | None, str]:
    """Run tests on the package in `folder` until the first failure; return code and output.

    The code is None if the time was over: a mutant may loop or wait for ever.
    """
    variables = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "HYPOTHESIS_STORAGE_DIRECTORY": str(folder / "hypothesis"),
    }
    quiet = ("-x", "-q", "-p", "no:cacheprovider", "--hypothesis-seed=0", "--rootdir", str(ROOT))
    with subprocess.Popen(  # noqa: S603 - our own tests
        [sys.executable, "-m", "pytest", *quiet, *tests],
        cwd=ROOT,
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        preexec_fn=_bound_memory,  # noqa: PLW1509 - this process has one thread
    ) as process:
        try:
            output, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return None, process.communicate()[0]
    return process.returncode, output


def _bound_memory() -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (MAX_DATA, MAX_DATA))


def try_group(group: Group, only: Sequence[str], folder: Path, until: float) -> tuple[int, int]:
    """Try the mutants of a group; return how many were killed, and how many were tried.

    Args:
        group: modules and tests.
        only: beginnings of modules' paths; empty: all.
        folder: has the copy of the package.
        until: when to end, by `time.monotonic`.
    """
    files = group.files(folder / PACKAGE, only)
    if not files:
        return 0, 0
    began = time.monotonic()
    code, output = run_tests(group.tests, folder, SECONDS)
    if code:
        sys.exit(
            f"the tests do not pass without a mutant: {' '.join(group.tests)}\n{output[-3_000:]}"
        )
    seconds = MAX_SLOWER * (time.monotonic() - began) + SPARE_SECONDS
    killed = tried = 0
    for file in files:
        source = file.read_bytes()
        for mutant in choose(make_mutants(source.decode()), group.limit):
            if time.monotonic() > until:
                break
            file.write_bytes(mutant.apply(source))
            survived = run_tests(group.tests, folder, seconds)[0] == 0
            killed, tried = killed + (not survived), tried + 1
            if survived:
                place = f"{file.relative_to(folder / PACKAGE)}:{mutant.line}"
                print(f"survived: {place}: {mutant.name}", flush=True)  # noqa: T201
        file.write_bytes(source)
    print(f"{group.modules[0]} ...: {killed} of {tried} killed", flush=True)  # noqa: T201
    return killed, tried


def main() -> int:
    """Try the mutants of all groups; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", action="append", default=[], metavar="PATH")
    parser.add_argument("--seconds", type=float, default=SECONDS)
    arguments = parser.parse_args()
    until = time.monotonic() + arguments.seconds
    killed = tried = 0
    with tempfile.TemporaryDirectory(prefix="mutants-") as name:
        skipped = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / "functions" / PACKAGE, Path(name, PACKAGE), ignore=skipped)
        for group in read_groups():
            if time.monotonic() > until:
                break
            counts = try_group(group, arguments.only, Path(name), until)
            killed, tried = killed + counts[0], tried + counts[1]
    print(f"{killed} of {tried} mutants killed")  # noqa: T201
    return 1 if killed < MIN_KILLED * tried else 0


if __name__ == "__main__":
    sys.exit(main())
