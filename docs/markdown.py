"""Markdown: tables, fences, and values as people write them."""

import re
from collections.abc import Iterable, Sequence


def make_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines
    )


def fenced(text: str) -> str:
    """Return text as it is."""
    return f"```text\n{text.rstrip()}\n```\n"


def plain_words(name: str) -> str:
    """Return a name that says all there is to say, as words."""
    spaced = "".join(f" {c.lower()}" if c.isupper() and not name.isupper() else c for c in name)
    return spaced.replace("_", " ").strip().lower()


def show_amount(default: str | None) -> str:
    """Return a default of the source as people write it: `8 * MIB` is 8 MiB."""
    if default in {None, "None", "()", "[]", "{}"}:
        return "none"
    text = (default or "").replace(" * ", " ")
    for name, unit in {"KIB": "KiB", "MIB": "MiB", "GIB": "GiB", "TIB": "TiB"}.items():
        text = text.replace(name, unit)
    if text.replace(".", "", 1).isdigit():
        return f"{int(text):,}" if text.isdigit() else f"{float(text):g}"
    if text in {"True", "False"}:
        return text.lower()
    member = re.fullmatch(r"[A-Z]\w+\.([A-Z_]+)", text)  # of an enumeration
    return member[1].lower() if member else text


def show_toml(value: object) -> str:
    """Return a value as an environment's file has it."""
    match value:
        case None:
            return "none"
        case bool():
            return f"`{str(value).lower()}`"
        case str():
            return f'`"{value}"`'
        case int() | float():
            return f"`{value:,}`"
    return f"`{value}`"
