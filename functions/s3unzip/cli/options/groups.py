"""Options that belong together, declared once as a dataclass and taken by many commands.

A command names a group as one of its parameters. `with_groups` gives Typer a
signature in which each field of the group is an option of its own, and puts
the group together again when the command runs::

    @dataclass(frozen=True)
    class Connection(OptionGroup):
        region: Annotated[str | None, typer.Option("--region")] = None

    def list_members(source: Source, connection: Connection) -> int: ...
"""

from __future__ import annotations

import inspect
from dataclasses import MISSING, dataclass, fields
from functools import wraps
from typing import TYPE_CHECKING, get_type_hints

from s3unzip.cli.options.messages import Messages, OptionGroup

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def with_groups(command: Callable[..., int]) -> Callable[..., int]:
    """Return `command` with each of its groups replaced by the group's options.

    The options of `Messages` are added to every command, and applied before it runs.
    """
    places = list(_places(command))
    groups = [place for place in places if place.fields]

    @wraps(command)
    def run(**values: object) -> int:
        Messages(**{name: values.pop(name) for name in MESSAGES}).apply()  # type: ignore[arg-type]
        for group in groups:
            values[group.name] = group.kind(**{name: values.pop(name) for name in group.fields})
        return command(**values)

    expanded = [parameter for place in places for parameter in place.parameters]
    expanded += _options_of(Messages)
    run.__signature__ = inspect.Signature(expanded, return_annotation=int)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in expanded} | {"return": int}
    return run


@dataclass(frozen=True, slots=True)
class _Place:
    """One parameter of a command, and what Typer is to see for it."""

    name: str
    kind: type
    parameters: list[inspect.Parameter]
    fields: tuple[str, ...] = ()  # of a group; empty: a parameter of the command itself


def _places(command: Callable[..., int]) -> Iterator[_Place]:
    hints = get_type_hints(command, include_extras=True)
    for name, parameter in inspect.signature(command).parameters.items():
        hint = hints[name]
        if isinstance(hint, type) and issubclass(hint, OptionGroup):
            options = _options_of(hint)
            yield _Place(name, hint, options, tuple(option.name for option in options))
        else:
            alone = parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hint)
            yield _Place(name, object, [alone])


def _options_of(group: type[OptionGroup]) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if field.default is MISSING else field.default,
            annotation=hints[field.name],
        )
        for field in fields(group)
    ]


MESSAGES = tuple(field.name for field in fields(Messages))
