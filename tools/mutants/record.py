"""The list of modules, the committed results, and the reasons of surviving mutants."""

from __future__ import annotations

import ast
import hashlib
import json
import tomllib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).resolve().parent.parent.parent
TARGETS = Path(__file__).with_name("targets.toml")
RECORD = ROOT / "tools" / "records" / "mutants.json"
REASONS = ROOT / "tools" / "records" / "survivors.toml"


@dataclass(frozen=True, slots=True)
class Target:
    """A module whose mutants are tried."""

    module: str  # its path below the package
    tests: tuple[str, ...]  # arguments of pytest
    limit: int  # at most so many mutants, chosen by their names


@dataclass(frozen=True, slots=True)
class Result:
    """The results of a module."""

    source: str  # digest of the module
    tests: str  # digest of its tests
    tried: int
    limit: int  # of the target at that time
    survived: tuple[str, ...]  # their names


def read_targets(path: Path = TARGETS) -> dict[str, Target]:
    """Return the targets by module.

    Raises:
        OSError: there is no such file.
        tomllib.TOMLDecodeError: it is not TOML.
    """
    listed = tomllib.loads(path.read_text(encoding="utf-8"))
    found = {}
    for group in listed["group"]:
        for module in group["modules"]:
            found[module] = Target(module, tuple(group["tests"]), group["limit"])
    return found


def digest_source(target: Target, root: Path = ROOT) -> str:
    """Return a hash of the module's code, without imports, comments and docstrings.

    Raises:
        OSError: there is no such module.
        SyntaxError: it is not Python.
    """
    path = root / "functions" / "s3unzip" / target.module
    tree = _Code().visit(ast.parse(path.read_text(encoding="utf-8")))
    return hashlib.sha256(ast.unparse(tree).encode()).hexdigest()[:16]


class _Code(ast.NodeTransformer):
    """Leaves out what changes no result: a moved module, a reworded sentence."""

    def visit_Import(self, node: ast.Import) -> None:
        del node

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        del node

    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        return None if isinstance(node.value, ast.Constant) else node


def digest_tests(target: Target, root: Path = ROOT) -> str:
    """Return a hash of the module's tests."""
    hashed = hashlib.sha256(repr(target.tests).encode())
    for test in target.tests:
        path = root / test.partition("::")[0]
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            if file.is_file():
                hashed.update(file.read_bytes())
    return hashed.hexdigest()[:16]


def read_record(path: Path = RECORD) -> dict[str, Result]:
    """Return the last results by module; none where there is no record yet."""
    if not path.exists():
        return {}
    found = json.loads(path.read_text(encoding="utf-8"))["targets"]
    return {
        module: Result(**{**one, "survived": tuple(one["survived"])})
        for module, one in found.items()
    }


def write_record(results: Mapping[str, Result], path: Path = RECORD) -> None:
    """Write the results, sorted by module."""
    targets = {module: asdict(result) for module, result in sorted(results.items())}
    text = json.dumps({"written_by": "make mutants", "targets": targets}, indent=1)
    path.write_text(text + "\n", encoding="utf-8")


def find_unexplained(results: Mapping[str, Result], path: Path = REASONS) -> list[str]:
    """Return a sentence for each survivor without a reason, and each reason without a survivor."""
    reasons = tomllib.loads(path.read_text(encoding="utf-8"))
    listed_modules = results.keys() | read_targets().keys()
    faults = []
    for module, result in sorted(results.items()):
        listed = reasons.get(module, {})
        faults += [
            f"{module}: no test fails on `{name}`: add one, or say in {path.name} why not"
            for name in result.survived
            if not listed.get(name)
        ]
        faults += [
            f"{module}: `{name}` does not survive: remove it from {path.name}"
            for name in listed
            if name not in result.survived
        ]
    faults += [
        f"{module}: not in targets.toml: remove it from {path.name}"
        for module in reasons
        if module not in listed_modules
    ]
    return faults
