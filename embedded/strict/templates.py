"""Hooks of the rules into resources of templates, which bypass the APIs."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

_provisioners: Any = import_module("ministack.services.cloudformation.provisioners")


def before(kind: str, check: Callable[[dict[str, Any]], str | None]) -> None:
    """Fail a resource of this type where `check` of its properties returns a sentence."""
    _around(kind, check, lambda _id, _properties: None)


def after(kind: str, finish: Callable[[str, dict[str, Any]], None]) -> None:
    """Call `finish` with physical id and properties once a resource of this type is made."""
    _around(kind, lambda _properties: None, finish)


def _around(
    kind: str,
    check: Callable[[dict[str, Any]], str | None],
    finish: Callable[[str, dict[str, Any]], None],
) -> None:
    handlers = _provisioners._RESOURCE_HANDLERS[kind]
    create, update = handlers["create"], handlers["update"]

    def around_create(logical_id: str, properties: dict[str, Any], stack: str) -> Any:
        _refuse(check(properties))
        made = create(logical_id, properties, stack)
        finish(made[0], properties)
        return made

    def around_update(
        physical_id: str, old: dict[str, Any], new: dict[str, Any], *more: Any, **named: Any
    ) -> Any:
        _refuse(check(new))
        made = update(physical_id, old, new, *more, **named)
        finish(made[0], new)
        return made

    handlers["create"], handlers["update"] = around_create, around_update


def _refuse(problem: str | None) -> None:
    if problem:
        raise ValueError(problem)
