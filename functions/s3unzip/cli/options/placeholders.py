"""What stands for a value in usage and help: ``N`` and ``TEXT``, not the types of Python."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Any, get_args

NAMES: dict[object, str] = {int: "N", float: "NUMBER", str: "TEXT", Path: "FILE"}
MARKS = "[]{}."  # put around the name of an argument; whether it is needed is known without them


def name_values(parameters: list[Any]) -> list[Any]:
    """Give each parameter of a command the placeholder that its help shows; return them.

    Args:
        parameters: of a command that Typer made (`click.Parameter`).
    """
    for parameter in parameters:
        if parameter.param_type_name == "argument":
            _name_argument(parameter)
        elif parameter.metavar is None:
            parameter.metavar = _placeholder(parameter)
    return parameters


def _placeholder(parameter: Any) -> str | None:
    """Return what stands for the value of an option; None: Typer's own, or it takes none."""
    descriptor = getattr(parameter, "type_descriptor", None)
    if descriptor is None or parameter.is_flag or parameter.count:
        return None
    annotation = next(iter(get_args(descriptor.annotation)), descriptor.annotation)
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return f"<{'|'.join(str(one.value) for one in annotation)}>"
    return NAMES.get(annotation)


def _name_argument(parameter: Any) -> None:
    """Show an argument as ``NAME``, ``[NAME]`` or ``NAME...``, in usage and in help."""
    if "get_usage_pieces" in vars(parameter):
        return
    name = parameter.display_name_raw.strip(MARKS)
    several = "..." if parameter.nargs == -1 else ""
    usage = f"{name}{several}" if parameter.required else f"[{name}{several}]"
    describe = parameter.get_help_record

    def get_help_record(context: Any) -> tuple[str, str] | None:
        found = describe(context)
        return None if found is None else (f"{name}{several}", found[1])

    parameter.get_usage_pieces = lambda _: [usage]
    parameter.get_help_record = get_help_record
