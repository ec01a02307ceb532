"""The declarations of a run's options.

An option is declared once, as a field of `model.Options`, `ObjectProperties` or
`stores.config.StoreConfig`. The field defines its name, type and default. A `RunOption` in the
annotation of the field defines its help and limits. `read_options` returns each `RunOption` with
the data from its field. The command line, the ``next:`` command, the overrides of `plan --env` and
the tables of an environment's file are made from these options. `cli.arguments` declares the other
parameters of commands in the same way.
"""

import types
from collections.abc import Iterator
from enum import Enum, StrEnum
from functools import cache
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin

from msgspec import NODEFAULT, Struct
from msgspec.structs import fields


class HelpSection(StrEnum):
    """The section titles of the help, in the order of the sections."""

    MEMBERS = "Which members"
    KEYS = "Where to"
    OBJECTS = "How objects look"
    ODD = "Encrypted and odd archives"
    STORES = "S3 and HTTP"
    AFTERWARDS = "After the run"


class RunOption(NamedTuple):
    """The form, help and limits of an option; `read_options` adds what its field declares."""

    form: str = ""  # names and value placeholder; empty if no command has the option
    help: str = ""
    section: HelpSection | None = None
    minimum: Any = 0  # smallest number accepted on the command line
    in_file: bool = True  # whether an environment's file can set a field of this name
    maximum_in_file: int | None = None
    variable: str | list[str] | None = None  # environment variables that also set the option
    known_values: tuple[str, ...] = ()  # for shell completion
    # Taken from the field that declares the option:
    field: str = ""
    kind: Any = None  # the type of its values, without None and annotations
    default: Any = None  # None if the option can be unset

    def __repr__(self) -> str:  # short, because `help` shows it in the signature of a class
        return f"RunOption({self.form!r})"

    @property
    def word(self) -> str:
        """The long name on the command line; empty if it is not an option of a command."""
        return next((word for word in self.form.split() if word.startswith("--")), "")

    @property
    def parameter(self) -> str:
        """The name of the command parameter that holds the option's value."""
        return self.word.lstrip("-").replace("-", "_")

    @property
    def choices(self) -> list[str]:
        """The values of an enumeration; empty for other types."""
        if isinstance(self.kind, type) and issubclass(self.kind, Enum):
            return [member.value for member in self.kind]
        return []

    @property
    def is_mapping(self) -> bool:
        """Whether the value is a mapping, given as ``NAME=TEXT``, once for each name."""
        return get_origin(self.kind) is dict


@cache
def read_options(declaring: type[Struct]) -> tuple[RunOption, ...]:
    """Return the options that the class `declaring` declares, in the order of its fields."""
    options = []
    for field in fields(declaring):
        for option in get_args(field.type):  # for an annotated type, the type and its annotations
            if isinstance(option, RunOption):
                default = field.default
                if default is NODEFAULT:
                    default = field.default_factory()
                options.append(
                    option._replace(field=field.name, kind=bare_type(field.type), default=default)
                )
    return tuple(options)


def describe_options(kind: Any) -> None:
    """Add the help of each option to the docstring of the class that declares it."""
    lines = [f"        {option.field}: {option.help}" for option in read_options(kind)]
    text = kind.__doc__ or ""
    if lines and "Attributes:" not in text:  # a second call changes nothing
        kind.__doc__ = "\n".join((f"{text.rstrip()}\n\n    Attributes:", *lines))


def bare_type(kind: Any) -> Any:
    """Return a type without its annotations and without None."""
    if get_origin(kind) is Annotated:
        return bare_type(get_args(kind)[0])
    if get_origin(kind) in {Union, types.UnionType}:
        return bare_type(next(part for part in get_args(kind) if part is not types.NoneType))
    return kind


def option_words(values: Struct) -> Iterator[str]:
    """Yield the command-line words for all options that differ from their defaults."""
    for option in read_options(type(values)):
        value = getattr(values, option.field)
        # For each option, an empty value (False, 0 or nothing) is either the default or invalid.
        if not option.word or not value or value == option.default:
            continue
        match value:
            case True:
                yield option.word
            case tuple():  # the option is repeated
                for text in value:
                    yield from (option.word, str(text))
            case dict():
                for key, text in value.items():
                    yield from (option.word, f"{key}={text}")
            case _:
                yield from (option.word, str(value))
