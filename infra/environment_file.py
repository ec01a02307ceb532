"""Reads `infra/environments/<name>.toml`; settings on the command line replace those of the file.

An example is ``-c runs.max_workers=50``. If a setting is wrong, missing or unknown, the command
fails with one line that names the file, the setting and the expected value.
"""

import difflib
import re
import tomllib
import types
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from infra import RefusedError
from infra.environment import Environment
from infra.tables import table_of

FOLDER = Path(__file__).parent / "environments"


def load_environment(
    name: str, folder: Path = FOLDER, *, settings: Mapping[str, object] | None = None
) -> Environment:
    """Return an environment; `settings`, by ``section.setting``, replace those of its file."""
    file = folder / f"{name}.toml"
    shown = f"infra/environments/{name}.toml"
    if not file.is_file():
        raise RefusedError(
            f"environment {name!r}: there is no {shown}; known: "
            + ", ".join(sorted(path.stem for path in folder.glob("*.toml")))
        )
    try:
        values: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8-sig"))
    except ValueError as error:  # the file is not TOML, or not UTF-8
        raise RefusedError(f"{shown}: {error}") from error
    try:
        replace_settings(values, settings or {})
        return Environment.model_validate({**values, "name": name})
    except ValidationError as error:
        message = first_line(error)
        # A message begins with the setting: if it is one of `settings`, the file is not to blame.
        typed = tuple(f"{setting}{end}" for setting in settings or () for end in ".: ")
        if message.startswith(typed):
            raise RefusedError(f"-c {message}") from error
        raise RefusedError(f"{shown}: {message}") from error


# A setting before the first table, or ``section.setting``; the name of a tag may be any text.
SETTING = re.compile(r"kms_key|password_secret|password_kms_key|event_bus|[a-z_]+\..+")


def select_settings(context: Mapping[str, object]) -> dict[str, object]:
    """Return the values of a CDK context whose keys are settings."""
    return {key: value for key, value in context.items() if SETTING.fullmatch(key)}


def replace_settings(values: dict[str, Any], settings: Mapping[str, object]) -> None:
    """Replace values of an environment's file by `settings`; `values` is changed.

    The value of a text setting is used unchanged. For other settings, a text is parsed as TOML:
    ``50``, ``true``, ``["*.csv"]``.
    """
    for path, value in settings.items():
        kind = _kind_of(path)
        *sections, name = path.split(".")
        table = values
        for section in sections:
            table = table.setdefault(section, {})
            if not isinstance(table, dict):  # the validation refuses the file's value
                break
        else:
            table[name] = (
                _read(value) if isinstance(value, str) and not _accepts_text(kind) else value
            )


def _kind_of(path: str) -> Any:
    """Return the type of the setting with this path, ``section.setting``; refuse other paths."""
    kind: Any = Environment
    for part in path.split("."):
        if get_origin(kind) is dict:  # a table with names that the user chooses
            kind = get_args(kind)[1]
        elif isinstance(kind, type) and issubclass(kind, BaseModel) and part in kind.model_fields:
            kind = table_of(kind.model_fields[part])
        else:
            raise RefusedError(f"-c {path}: there is no such setting{_near(kind, part)}")
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        raise RefusedError(f"-c {path}: this is a section; name one of its settings")
    return kind


def _near(kind: Any, name: str) -> str:
    """Return the settings with names similar to `name`, as the end of a message; may be empty."""
    settings = kind.model_fields if isinstance(kind, type) and issubclass(kind, BaseModel) else ()
    near = difflib.get_close_matches(name, settings, n=2)
    return f"; near: {', '.join(near)}" if near else ""


def _accepts_text(kind: Any) -> bool:
    """Return whether a setting can be a text, so that a given text is not parsed as TOML."""
    origin = get_origin(kind)
    if origin is Literal:
        return any(isinstance(value, str) for value in get_args(kind))
    if origin in {Union, types.UnionType, Annotated}:
        return any(_accepts_text(alternative) for alternative in get_args(kind))
    return kind is str


def _read(text: str) -> object:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text  # the validation reports the expected value


# The end of a message by pydantic's type of the error; the context of the error has the fields.
_EXPECTED = {
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "must be a whole number"),
    **dict.fromkeys(("float_type", "float_parsing", "finite_number"), "must be a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "must be true or false"),
    **dict.fromkeys(("tuple_type", "list_type"), "must be a list such as ['a','b']"),
    **dict.fromkeys(("dict_type", "model_type"), "must be a table"),
    "string_type": "must be text",
    "string_too_short": "must have at least {min_length} characters",
    "string_too_long": "must have at most {max_length} characters",
    "too_long": "must have at most {max_length} entries",
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
    expected = _EXPECTED.get(first["type"], f"{first['msg'][0].lower()}{first['msg'][1:]}")
    actual = (
        "it may be a password"
        if setting.endswith("password_secret")
        else f"it is {first['input']!r:.200}"
    )
    return f"{setting} {expected.format(**first.get('ctx', {}))}; {actual}"
