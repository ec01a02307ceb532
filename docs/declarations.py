"""What a class of the code declares, with the comments beside it: the reference's raw material.

Nothing here knows which classes the reference is about, or Markdown.
"""

import ast
import inspect
import io
import tokenize
from dataclasses import dataclass
from textwrap import dedent


@dataclass(frozen=True, slots=True)
class Declared:
    """One field, enum member or class attribute, as its source line says it."""

    name: str
    default: str | None  # source text; None: there is none
    comment: str  # what stands behind it on its line, or ""
    group: str  # the comment line above it, or above an earlier neighbour


def read_declarations(kind: type) -> dict[str, Declared]:
    """Return what the body of `kind` and of its bases in the same project declares, bases first."""
    found: dict[str, Declared] = {}
    for base in reversed(kind.__mro__):
        if base.__module__.split(".")[0] in {"s3unzip", "infra"}:
            found |= _read_body(base)
    return found


def read_comments(module: object, variable: str) -> dict[str, str]:
    """Return the comments behind the entries of the dict literal `variable` of a module."""
    source = inspect.getsource(module)  # type: ignore[arg-type]  # the stub wants a module type
    comments, _ = _comments(source)
    for node in ast.parse(source).body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Dict(keys=keys)):
                if name == variable:
                    return {
                        key.value: comments.get(key.lineno, "")
                        for key in keys
                        if isinstance(key, ast.Constant) and isinstance(key.value, str)
                    }
    raise LookupError(f"{variable}: no dict of that name in {module!r}")


def first_sentence(kind: object) -> str:
    """Return the first paragraph of a docstring on one line."""
    return " ".join((inspect.getdoc(kind) or "").split("\n\n")[0].split())


def _read_body(kind: type) -> dict[str, Declared]:
    source = dedent(inspect.getsource(kind))
    beside, above = _comments(source)
    body = ast.parse(source).body[0]
    assert isinstance(body, ast.ClassDef)  # noqa: S101 - it is the source of a class
    found: dict[str, Declared] = {}
    group, seen = "", body.lineno
    for node in body.body:
        match node:
            case (
                ast.AnnAssign(target=ast.Name(id=name), value=value)
                | ast.Assign(targets=[ast.Name(id=name)], value=value)
            ):
                pass
            case _:
                continue
        headings = [text for line, text in sorted(above.items()) if seen < line < node.lineno]
        seen = node.end_lineno or node.lineno
        default = None if value is None else ast.unparse(value)
        comment = beside.get(seen, "")
        if comment.startswith(("noqa", "type:")):  # a word to a tool; then ours stands above
            found[name] = Declared(name, default, " ".join(headings), group)
            continue
        group = " ".join(headings) or group
        found[name] = Declared(name, default, comment, group)
    return found


def _comments(source: str) -> tuple[dict[int, str], dict[int, str]]:
    """Return the comments by line: those behind code, and those on lines of their own."""
    beside: dict[int, str] = {}
    above: dict[int, str] = {}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            alone = not token.line[: token.start[1]].strip()
            (above if alone else beside)[token.start[0]] = token.string.lstrip("# ").strip()
    return beside, above
