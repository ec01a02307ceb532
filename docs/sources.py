"""Names that stand in the calls of the code: codes of findings, variables, alarms."""

import ast
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def read_alarms() -> Iterator[Sequence[str]]:
    """Yield name, threshold and advice of each alarm; infra/alarms.py is slow to import."""
    for node in ast.walk(ast.parse((ROOT / "infra" / "alarms.py").read_text())):
        match node:
            case ast.Assign(targets=[ast.Name(id="QUEUE_ADVICE" | "OPTIONAL_ADVICE")], value=table):
                for name, advice in ast.literal_eval(table).items():
                    yield f"`{name}`", "`0`", advice
            case ast.Call(func=ast.Attribute(attr="_alarm"), args=[ast.Constant(value=name), *_]):
                given = {word.arg: word.value for word in node.keywords}
                limit = given.get("above", ast.Constant(0))
                above = ast.unparse(limit).removeprefix("environment.")
                yield f"`{name!s}`", f"`{above}`", str(ast.literal_eval(given["advice"]))


def finding_codes() -> set[str]:
    """Return the codes that the pipeline puts into findings."""
    codes = set()
    for file in (ROOT / "functions" / "s3unzip").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            match node:
                case ast.Call(func=ast.Attribute(attr="get"), args=[_, ast.Constant(value=code)]):
                    codes |= {"storage"} & {code}
                case (
                    ast.Call(
                        func=ast.Name(id="Finding") | ast.Attribute(attr="finding" | "Finding"),
                        args=[ast.Constant(value=str(code)), *_],
                    )
                    | ast.Call(
                        func=ast.Attribute(attr="fail_header"),
                        args=[_, ast.Constant(value=str(code)), *_],
                    )
                    | ast.keyword(arg="reason", value=ast.Constant(value=str(code)))
                    | ast.Assign(
                        targets=[ast.Name(id="reason")], value=ast.Constant(value=str(code))
                    )
                ):
                    codes.add(code)
    return codes


def host_variables() -> set[str]:
    """Return the environment variables that a run on one machine reads."""
    # boto3 and Rich read these.
    found = {"AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "NO_COLOR", "FORCE_COLOR"}
    package = ROOT / "functions" / "s3unzip"
    folders = (package / name for name in ("api", "cli", "local", "stores"))
    for file in (file for folder in folders for file in folder.rglob("*.py")):
        tree = ast.parse(file.read_text())
        names = dict(_text_constants(tree))
        for node in ast.walk(tree):
            match node:
                case ast.Call(
                    func=ast.Attribute(attr="get", value=ast.Attribute(attr="environ")),
                    args=[ast.Constant(value=name), *_],
                ):
                    found.add(str(name))
                case ast.Call(
                    func=ast.Attribute(attr="get", value=ast.Attribute(attr="environ")),
                    args=[ast.Name(id=constant), *_],
                ):
                    found.add(names[constant])
    return found


def _text_constants(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield name and value of a module's constants that are text."""
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=str(value))):
                yield name, value


def check_described(table: str, names: Iterable[str], described: Iterable[str]) -> None:
    """Hold a table of meanings against the code.

    Raises:
        LookupError: a name is only in one of them.
    """
    odd = set(names) ^ set(described)
    if odd:
        raise LookupError(f"{table} and the code disagree about {', '.join(sorted(odd))}")
