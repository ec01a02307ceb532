"""The table of a run's options.

An option is declared once, by a field of `model.Options`, `ObjectProperties` or
`stores.config.StoreConfig`. The field has its name, type and default; a `RunOption` in the field's
annotation has its help and its limits. `read_options` returns each option with what its field says.
These values make the command line, the ``next:`` command, the overrides of `plan --env`, and the
tables of an environment's file. `cli.arguments` declares the other parameters of commands in the
same way.
"""

import types
from collections.abc import Iterator
from enum import Enum, StrEnum
from functools import cache
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin

from msgspec import NODEFAULT, Struct
from msgspec.structs import fields


class HelpSection(StrEnum):
    """The titles of the help, in its order."""

    MEMBERS = "Which members"
    KEYS = "Where to"
    OBJECTS = "How objects look"
    ODD = "Encrypted and odd archives"
    STORES = "S3 and HTTP"
    AFTERWARDS = "After the run"


class RunOption(NamedTuple):
    """How an option is typed, explained and limited; `read_options` adds what its field says."""

    form: str = ""  # its names and the placeholder of its value; empty: not an option of a command
    help: str = ""
    section: HelpSection | None = None
    minimum: Any = 0  # of a number on the command line
    in_file: bool = True  # whether an environment's file may set it, by the name of the field
    maximum_in_file: int | None = None
    variable: str | list[str] | None = None  # environment variables that also set it
    known_values: tuple[str, ...] = ()  # for completion by a shell
    # Of the field that declares it:
    field: str = ""
    kind: Any = None  # the type of its values, without None and annotations
    default: Any = None  # None: the option may have no value

    def __repr__(self) -> str:
        """Return a short form, which fits into the signature of a class of options."""
        return f"RunOption({self.form!r})"

    @property
    def word(self) -> str:
        """Its long name on the command line; empty: it is not an option of a command."""
        return next((word for word in self.form.split() if word.startswith("--")), "")

    @property
    def parameter(self) -> str:
        """Its name among the parameters of a command."""
        return self.word.lstrip("-").replace("-", "_")

    @property
    def choices(self) -> list[str]:
        """The values of an enumeration; empty for other types."""
        if isinstance(self.kind, type) and issubclass(self.kind, Enum):
            return [member.value for member in self.kind]
        return []

    @property
    def is_mapping(self) -> bool:
        """Whether its value is a mapping, which is typed as ``NAME=TEXT``, once for each name."""
        return get_origin(self.kind) is dict


@cache
def read_options(declaring: type[Struct]) -> tuple[RunOption, ...]:
    """Return the options that the fields of `declaring` declare, in their order."""
    options = []
    for field in fields(declaring):
        for option in get_args(field.type):  # of an annotated type: the type and its annotations
            if isinstance(option, RunOption):
                default = field.default
                if default is NODEFAULT:
                    default = field.default_factory()
                kind = bare_type(field.type)
                options.append(option._replace(field=field.name, kind=kind, default=default))
    return tuple(options)


def describe_options(kind: Any) -> None:
    """Add the help of each option to the docstring of the class that declares it."""
    lines = [f"        {option.field}: {option.help}" for option in read_options(kind)]
    text = kind.__doc__ or ""
    if lines and "Attributes:" not in text:  # a second call changes nothing
        kind.__doc__ = "\n".join((f"{text.rstrip()}\n\n    Attributes:", *lines))


def bare_type(kind: Any) -> Any:
    """Return a type without annotations and without None."""
    if get_origin(kind) is Annotated:
        return bare_type(get_args(kind)[0])
    if get_origin(kind) in {Union, types.UnionType}:
        return bare_type(next(part for part in get_args(kind) if part is not types.NoneType))
    return kind


def type_options(values: Struct) -> Iterator[str]:
    """Yield the words of a command line for all options that are not at their defaults."""
    for option in read_options(type(values)):
        value = getattr(values, option.field)
        if option.word and value and value != option.default:  # an empty value cannot be typed
            yield from type_option(option.word, value)


def type_option(word: str, value: object) -> Iterator[str]:
    """Yield the words of a command line for one option, which may be repeated."""
    match value:
        case True:
            yield word
        case tuple():
            for text in value:
                yield from (word, str(text))
        case dict():
            for key, text in value.items():
                yield from (word, f"{key}={text}")
        case _:
            yield from (word, str(value))
