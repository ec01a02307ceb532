"""``python -m tools.house``: how much the project says and how it reads, beside ceilings.

``make check`` runs it, and fails where a figure is above its ceiling in
``tools/records/ceilings.json``. ``--where`` prints each place that counts. ``--lower`` writes the
figures of today where they are lower; it raises none.

The size of code is counted in thoughts, not in lines. A statement is a thought. So is each further
value of a tuple assignment, each conditional expression and each ``:=``. To split a dense line
costs nothing.
"""

import ast
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CEILINGS = ROOT / "tools" / "records" / "ceilings.json"
PACKAGE = "functions/s3unzip"
APPARATUS = ("embedded", "bench", "acceptance", "tools", "docs")
SKIPPED = {"__pycache__", ".venv", "node_modules", "build"}


# Words that do not say what a name holds.
GENERIC_WORDS = (
    "found one place known given what kept left told said words way piece rest others other every "
    "chosen wanted there seen before after following head group step asked noted here both"
)
GENERIC = frozenset(GENERIC_WORDS.split())


@dataclass
class House:
    """The figures of a checkout, and a line for each place that counts in one of them."""

    figures: dict[str, float] = field(default_factory=dict)
    places: list[str] = field(default_factory=list)


def _list_files(root: Path, folder: str) -> list[Path]:
    files = sorted((root / folder).rglob("*.py"))
    return [path for path in files if not SKIPPED & set(path.relative_to(root).parts)]


def _count_lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def _parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _count_thoughts(files: list[Path]) -> int:
    return sum(weigh(node) for path in files for node in ast.walk(_parse(path)))


def weigh(node: ast.AST) -> int:
    """Return how many thoughts a node is: ``a, b = x, y`` is two, so is ``x = a if c else b``."""
    if isinstance(node, ast.Assign):
        return count_assigned(node)
    return int(isinstance(node, ast.stmt | ast.IfExp | ast.NamedExpr))


def count_assigned(node: ast.Assign) -> int:
    """Return how many names get a value each; an exchange of values counts as one."""
    target = node.targets[0]
    if not (isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple)):
        return 1
    targets = {ast.unparse(name) for name in target.elts}
    values = {ast.unparse(value) for value in node.value.elts}
    return 1 if targets == values else len(node.value.elts)


def asks_for_scheme(node: ast.Compare) -> bool:
    """Say whether a comparison asks which kind of store a location has."""
    sides = [node.left, *node.comparators]
    return any(isinstance(side, ast.Attribute) and side.attr == "scheme" for side in sides)


def find_places(path: Path, tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield a figure's name and a description for each node that counts in that figure."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and count_assigned(node) > 1:
            yield "tuple assignments", describe(path, node)
        elif isinstance(node, ast.Call) and len(node.args) > 4:
            yield "calls with 5 or more positional arguments", describe(path, node)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            if node.id.strip("_") in GENERIC:
                yield "generic names", describe(path, node)
        elif isinstance(node, ast.Compare) and "stores" not in path.parts and asks_for_scheme(node):
            yield "questions by scheme outside of stores/", describe(path, node)


def describe(path: Path, node: ast.expr | ast.stmt) -> str:
    """Return the place and the text of a node."""
    return f"{path.name}:{node.lineno}: {ast.unparse(node)[:80]}"


def find_constants(trees: list[ast.Module]) -> dict[str, set[str]]:
    """Return the values of each constant that a module declares, by its name."""
    constants: dict[str, set[str]] = {}
    for tree in trees:
        for node in tree.body:
            if isinstance(node, ast.Assign):
                target: ast.expr = node.targets[0]
            elif isinstance(node, ast.AnnAssign):
                target = node.target
            else:
                continue
            if isinstance(target, ast.Name) and target.id.isupper() and node.value is not None:
                constants.setdefault(target.id, set()).add(ast.unparse(node.value))
    return constants


def find_imports(tree: ast.Module, modules: set[str]) -> Iterator[str]:
    """Yield the modules that a module imports, inside of functions too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in modules else node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def find_circles(files: list[Path], root: Path) -> list[str]:
    """Return the modules that import themselves by way of others; parent packages do not count."""
    paths = {_name_module(path, root): path for path in files}
    imports = {
        module: {
            target
            for target in find_imports(_parse(path), set(paths))
            if target in paths and target != module and not module.startswith(f"{target}.")
        }
        for module, path in paths.items()
    }
    return sorted(module for module in imports if module in _find_reachable(module, imports))


def _find_reachable(start: str, imports: dict[str, set[str]]) -> set[str]:
    reachable: set[str] = set()
    waiting = list(imports[start])
    while waiting:
        module = waiting.pop()
        if module not in reachable:
            reachable.add(module)
            waiting.extend(imports[module])
    return reachable


def _name_module(path: Path, root: Path) -> str:
    parts = path.relative_to(root / PACKAGE).with_suffix("").parts
    return ".".join(["s3unzip", *(part for part in parts if part != "__init__")])


def measure_package(root: Path, house: House) -> None:
    """Add the figures of the package's code to the house."""
    files = _list_files(root, PACKAGE)
    trees = [_parse(path) for path in files]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    counts: Counter[str] = Counter()
    for path, tree in zip(files, trees, strict=True):
        for figure, place in find_places(path.relative_to(root), tree):
            counts[figure] += 1
            house.places.append(f"{figure}: {place}")
    classes = Counter(node.name for node in nodes if isinstance(node, ast.ClassDef))
    functions = [
        (node.end_lineno or 0) - node.lineno + 1
        for node in nodes
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    statements = sum(isinstance(node, ast.stmt) for node in nodes)
    conditionals = sum(isinstance(node, ast.IfExp) for node in nodes)
    names = sum(isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) for node in nodes)
    ambiguous = [name for name, values in find_constants(trees).items() if len(values) > 1]
    circles = find_circles(files, root)
    house.places += [f"constants of one name with two values: {name}" for name in ambiguous]
    house.places += [f"modules in import circles: {name}" for name in circles]
    house.figures |= {
        "package thoughts": sum(map(weigh, nodes)),
        "package modules": len(files),
        "package classes": classes.total(),
        "files above 450 lines": sum(_count_lines(path) > 450 for path in files),
        "longest function": max(functions, default=0),
        "tuple assignments": counts["tuple assignments"],
        "conditional expressions, per 1,000 statements": _per(1000, conditionals, statements),
        "calls with 5 or more positional arguments": counts[
            "calls with 5 or more positional arguments"
        ],
        "generic names, % of names stored": _per(100, counts["generic names"], names),
        "questions by scheme outside of stores/": counts["questions by scheme outside of stores/"],
        "modules in import circles": len(circles),
        "class names used twice": sum(count > 1 for count in classes.values()),
        "constants of one name with two values": len(ambiguous),
    }


def _per(scale: int, part: int, whole: int) -> float:
    return round(scale * part / max(1, whole), 1)


def measure_commands(tool: Path) -> dict[str, float]:
    """Return how many commands the installed tool has, and how many options `run`."""

    def ask(*arguments: str) -> str:
        command = [str(tool), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout  # noqa: S603 - fixed arguments

    commands = ask("--help").partition("Commands:")[2]
    options = re.findall(r"^\s+(?:-\w, )?--[a-z][\w-]+", ask("run", "--help"), re.MULTILINE)
    return {
        "commands": len(re.findall(r"^  [a-z][a-z-]+ {2,}\S", commands, re.MULTILINE)),
        "options of run": len(options),
    }


def measure(root: Path) -> House:
    """Return all figures of a checkout."""
    house = House()
    measure_package(root, house)
    assets = [
        path for path in (root / PACKAGE).rglob("*") if path.suffix in {".js", ".css", ".html"}
    ]
    apparatus = [path for folder in APPARATUS for path in _list_files(root, folder)]
    house.figures |= {
        "infra thoughts": _count_thoughts(_list_files(root, "infra")),
        "tests thoughts": _count_thoughts(_list_files(root, "tests")),
        "embedded, bench, acceptance, tools, docs: thoughts": _count_thoughts(apparatus),
        "lines of js, css and html in the package": sum(map(_count_lines, assets)),
        "how-tos": len(list((root / "docs" / "howto").glob("*.md"))),
    }
    tool = root / ".venv" / "bin" / "s3unzip"
    if tool.exists():
        house.figures |= measure_commands(tool)
    return house


def find_faults(figures: dict[str, float], ceilings: dict[str, float]) -> list[str]:
    """Return a sentence for each figure above its ceiling, or without one."""
    return [
        f"{name}: {value:g}, the ceiling is {ceilings.get(name, 0):g}"
        for name, value in figures.items()
        if value > ceilings.get(name, 0)
    ]


def lower(figures: dict[str, float], ceilings: dict[str, float]) -> dict[str, float]:
    """Return the ceilings, each as low as the figure of today; none is raised.

    A checkout without the installed tool does not measure the commands: their ceilings remain.
    """
    return ceilings | {
        name: min(value, ceilings.get(name, value)) for name, value in figures.items()
    }


def main() -> int:
    """Print the figures; return 1 where one is above its ceiling."""
    house = measure(ROOT)
    ceilings = json.loads(CEILINGS.read_text(encoding="utf-8")) if CEILINGS.exists() else {}
    if "--lower" in sys.argv:
        ceilings = lower(house.figures, ceilings)
        CEILINGS.write_text(json.dumps(ceilings, indent=1) + "\n", encoding="utf-8")
    if "--where" in sys.argv:
        sys.stdout.write("".join(f"{place}\n" for place in house.places))
    for name, value in house.figures.items():
        sys.stdout.write(f"{name:50} {value:>8g} {ceilings.get(name, 0):>8g}\n")
    faults = find_faults(house.figures, ceilings)
    sys.stdout.write("".join(f"error: {fault}\n" for fault in faults))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
