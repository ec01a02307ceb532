"""docs/reference/api.md: the public names of the Python package, from their docstrings."""

import inspect
import re
from collections.abc import Iterator
from types import ModuleType

import s3unzip
from docs.markdown import make_table

FUNCTIONS = ("open_archive", "extract", "verify")
OBJECTS = ("Archive", "ArchiveMember", "Progress")
INTRODUCTION = """\
[Use s3unzip from Python](../howto/python.md) is the guide. `dir(s3unzip)` lists the public names.
Modules are loaded when a name is first used, so `import s3unzip` is cheap.
"""
STABILITY = """\
* These names change in an incompatible way only with a new major version: the names on this page
  with their documented arguments and attributes, and the public names of `s3unzip.zip`,
  `s3unzip.zip.decode` and `s3unzip.deflate`. Before version 1.0 a minor version may change them;
  the changelog says so.
* New arguments have defaults and are passed by keyword. New fields, checks and errors may appear in
  any version; a new error is a subclass of an existing one.
* Everything else may change at any time: other modules, names that begin with an underscore, texts
  of messages, and representations.
* The package is typed (`py.typed`). The types of public names are part of the promise.
"""
ERRORS = """\
`errors.S3UnzipError` is the root of [the error tree](errors.md). The cores raise
subclasses of `errors.ArchiveError`: `RejectedError`, `MemberError` and `DeflateError`. A
`ValueError` from a core means that the caller broke a documented rule.
"""
THREADS = """\
Several threads may use one `Archive`, and so may forked processes, unless it reads an open file.
`extract` starts processes and returns when they have ended. Call it from the main thread if Ctrl-C
is to stop the run in an orderly way.
"""


def make_api() -> str:
    """Return api.md."""
    others = [name for name in dir(s3unzip) if name not in (*FUNCTIONS, *OBJECTS)]
    values = [name for name in others if not isinstance(getattr(s3unzip, name), ModuleType)]
    cores = [name for name in others if name not in values]
    parts = ["# Python API\n", INTRODUCTION, "## Functions\n"]
    for name in FUNCTIONS:
        parts += [f"### {name}\n", *_describe_function(getattr(s3unzip, name))]
    for name in OBJECTS:
        parts += [f"## {name}\n", *_describe_class(getattr(s3unzip, name))]
    parts += ["## Values and modules\n", _summarize(values), _summarize(cores)]
    parts += ["## Errors\n", ERRORS, "## Threads and processes\n", THREADS]
    parts += ["## Promise of stability\n", STABILITY]
    return "\n".join(parts)


def _describe_function(function: object) -> Iterator[str]:
    text = inspect.getdoc(function) or ""
    signature = str(inspect.signature(function))  # type: ignore[arg-type]  # one of ours
    name = function.__name__  # type: ignore[attr-defined]  # as above
    plain = re.sub(r"\b(?:s3unzip|collections)\.(?:\w+\.)*", "", signature)
    lines = re.sub(r", (?=\w+:|\*)", ",\n    ", plain)
    lines = lines.replace("(", "(\n    ", 1).replace(") ->", ",\n) ->")
    yield f"```python\n{name}{lines}\n```\n"
    head, _, rest = text.partition("\n\nArgs:\n")
    arguments, _, raised = rest.partition("\n\nRaises:\n")
    yield f"{_marked(head)}\n"
    module = inspect.getdoc(inspect.getmodule(function)) or ""
    yield "```python\n" + module[module.index(">>>") :] + "\n```\n"
    yield make_table(("argument", "meaning"), _rows(arguments))
    yield make_table(("raises", "when"), _rows(raised))


def _describe_class(kind: type) -> Iterator[str]:
    yield _marked((inspect.getdoc(kind) or "").partition("\n\nArgs:")[0]) + "\n"
    yield make_table(
        ("attribute", "meaning"),
        (
            (_shown(name, value), _first_sentences(value))
            for name, value in vars(kind).items()
            if not name.startswith("_") or name in {"__len__", "__iter__"}
        ),
    )


def _shown(name: str, value: object) -> str:
    if name in {"__len__", "__iter__"}:
        return "`len()`" if name == "__len__" else "iteration"
    if isinstance(value, property):
        return f"`{name}`"
    taken = [one for one in inspect.signature(value).parameters if one not in {"self", "_"}]  # type: ignore[arg-type]  # a method
    return f"`{name}({', '.join(taken)})`"


def _summarize(names: list[str]) -> str:
    return make_table(
        ("name", "meaning"),
        ((f"`{name}`", _first_sentences(getattr(s3unzip, name))) for name in names),
    )


def _first_sentences(value: object) -> str:
    return _marked((inspect.getdoc(value) or "").split("\n\n")[0].replace("\n", " "))


def _rows(section: str) -> Iterator[tuple[str, str]]:
    """Yield names and meanings of a section ``Args`` or ``Raises``."""
    for entry in re.split(r"\n(?=    \S)", section):
        names, _, meaning = entry.strip().partition(": ")
        shown = ", ".join(f"`{name}`" for name in names.split(", "))
        yield shown, _marked(re.sub(r"\s+", " ", meaning))


def _marked(text: str) -> str:
    """Return text with literals as Markdown marks them."""
    return re.sub(r"``(.+?)``", r"`\1`", text)
