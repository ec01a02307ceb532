"""Settings of the command line: ``-c runs.max_workers=50`` replaces the file's value."""

from __future__ import annotations

import re
import tomllib
import types
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel

if TYPE_CHECKING:
    from collections.abc import Mapping

SETTING = re.compile(r"[a-z_]+(\.[a-z0-9_]+)+")


class SettingError(Exception):
    """A setting of the command line does not exist; the message is one line."""


def select_settings(context: Mapping[str, object]) -> dict[str, object]:
    """Return the values of a CDK context whose keys are settings: ``section.setting``."""
    return {key: value for key, value in context.items() if SETTING.fullmatch(key)}


def replace_settings(
    values: dict[str, Any], settings: Mapping[str, object], model: type[BaseModel]
) -> None:
    """Put `settings` into `values`, the values of an environment's file.

        A text setting gets the text unchanged. Other settings parse their text as TOML: ``50``,
        ``true``, ``["*.csv"]``.

    Raises:
        SettingError: `model` has no such setting.
    """
    for path, value in settings.items():
        kind = _kind_of(path, model)
        *sections, name = path.split(".")
        table = values
        for section in sections:
            table = table.setdefault(section, {})
        table[name] = _read(value) if isinstance(value, str) and not _is_text(kind) else value


def _kind_of(path: str, model: type[BaseModel]) -> Any:
    kind: Any = model
    for part in path.split("."):
        if get_origin(kind) is dict:  # a table of free names
            kind = get_args(kind)[1]
        elif isinstance(kind, type) and issubclass(kind, BaseModel) and part in kind.model_fields:
            kind = kind.model_fields[part].annotation
        else:
            raise SettingError(f"-c {path}: there is no such setting")
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        raise SettingError(f"-c {path}: this is a section; name one of its settings")
    return kind


def _is_text(kind: Any) -> bool:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Literal:
        return any(isinstance(one, str) for one in arguments)
    if origin in {Union, types.UnionType, Annotated}:
        return any(_is_text(one) for one in arguments)
    return kind is str


def _read(text: str) -> object:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text  # the validation reports the expected value
