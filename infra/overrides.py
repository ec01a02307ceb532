"""Settings of the command line: ``-c runs.max_workers=50`` replaces the file's value."""

from __future__ import annotations

import re
import tomllib
import types
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import ValidationError

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


# By pydantic's type of an error; the fields in braces are its context.
_EXPECTED = {
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "string_type": "must be text",
    "tuple_type": "must be a list",
    "list_type": "must be a list",
    "dict_type": "must be a table",
    "model_type": "must be a table",
    "greater_than": "must be more than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "literal_error": "must be {expected}",
    "string_pattern_mismatch": "must match {pattern}",
}


def first_line(error: ValidationError) -> str:
    """Return the first error as ``setting: expected value, actual value``."""
    first = error.errors(include_url=False)[0]
    setting = ".".join(str(part) for part in first["loc"])
    match first["type"]:
        case "missing":
            return f"{setting}: this setting is missing"
        case "extra_forbidden":
            return f"{setting}: there is no such setting"
        case "value_error":
            return first["msg"].removeprefix("Value error, ")
    message = first["msg"]
    expected = _EXPECTED.get(first["type"], f"{message[0].lower()}{message[1:]}")
    return f"{setting} {expected.format(**first.get('ctx', {}))}; it is {first['input']!r}"
