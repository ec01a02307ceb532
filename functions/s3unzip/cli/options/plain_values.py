"""Take simple values of options without Pydantic, which Typer imports for every value.

Importing Pydantic costs more CPU than all the rest of a short command. Text, switches, defaults,
members of enumerations and whole numbers need no library. Every other value, and every wrong one,
is left to Typer, so its messages stay.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Final

from typer.core import TyperCommand

from s3unzip.cli.options.placeholders import name_values

LEFT: Final = object()  # the value is left to Typer


class PlainCommand(TyperCommand):
    """A command whose parameters take plain values by themselves."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters of the command, its help option included."""
        return accept_plain_values(name_values(super().get_params(ctx)))


def accept_plain_values(parameters: list[Any]) -> list[Any]:
    """Let each parameter of a command take plain values by itself; return the parameters.

    Args:
        parameters: of a command that Typer made (`click.Parameter`).
    """
    for parameter in parameters:
        descriptor = getattr(parameter, "type_descriptor", None)
        if descriptor is not None and "process_value" not in vars(parameter):
            _accept(parameter, descriptor.annotation, descriptor.parameter_info)
    return parameters


def _accept(parameter: Any, annotation: Any, info: Any) -> None:
    process = parameter.process_value
    is_list = parameter.multiple or parameter.nargs == -1

    def process_value(context: Any, value: object) -> object:
        found: object = LEFT
        if value is None:
            found = LEFT if parameter.required else () if is_list else None
        elif is_list:
            found = _plain_list(annotation, value)
        elif value == parameter.default and type(value) is annotation:
            found = value
        else:
            found = _plain(annotation, info, value)
        if found is LEFT:
            return process(context, value)
        callback = parameter.callback
        return found if callback is None else callback(context, parameter, found)

    parameter.process_value = process_value


def _plain_list(annotation: object, value: object) -> object:
    if annotation == list[str] and isinstance(value, (list, tuple)) and value:
        return list(value) if all(isinstance(one, str) for one in value) else LEFT
    return LEFT


def _plain(annotation: Any, info: Any, value: object) -> object:
    """Return what `value` is as `annotation`; `LEFT` if that is not obvious."""
    if not isinstance(value, str):
        return LEFT
    if annotation is str:
        return value
    if annotation is int and value.isascii() and value.isdecimal():
        number = int(value)
        above = info.min is None or info.min <= number
        return number if above and (info.max is None or number <= info.max) else LEFT
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return next((one for one in annotation if one.value == value), LEFT)
    return LEFT
