"""Hooks of the rules into resources of templates, which bypass the APIs."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

_provisioners: Any = import_module("ministack.services.cloudformation.provisioners")


def around(
    kind: str,
    check: Callable[[dict[str, Any]], str | None] = lambda _properties: None,
    finish: Callable[[str, dict[str, Any], dict[str, Any]], None] = lambda _id, _old, _new: None,
) -> None:
    """Hook into the making of a resource of this type.

    Args:
        kind: the type.
        check: of its properties; where it returns a sentence, the resource fails.
        finish: called with the physical id, the old and the new properties once the resource is
            made or changed.
    """
    handlers = _provisioners._RESOURCE_HANDLERS[kind]
    create, update = handlers["create"], handlers["update"]

    def around_create(logical_id: str, properties: dict[str, Any], stack: str) -> Any:
        _refuse(check(properties))
        made = create(logical_id, properties, stack)
        finish(made[0], {}, properties)
        return made

    def around_update(
        physical_id: str, old: dict[str, Any], new: dict[str, Any], *more: Any, **named: Any
    ) -> Any:
        _refuse(check(new))
        made = update(physical_id, old, new, *more, **named)
        finish(made[0], old, new)
        return made

    handlers["create"], handlers["update"] = around_create, around_update


def _refuse(problem: str | None) -> None:
    if problem:
        raise ValueError(problem)
