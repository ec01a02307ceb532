"""Messages for wrong settings: one line that names the setting and the expected value."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import ValidationError

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
