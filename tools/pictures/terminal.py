"""Draws what a terminal shows as SVG, by Rich's export."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING, NamedTuple

from rich.console import Console
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

COLUMNS = 96
FONT_FACE = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)  # loads a font from another server


class Shown(NamedTuple):
    """One command and what it printed, progress and colours included."""

    command: str
    output: Sequence[RenderableType]  # text with ANSI codes, or what Rich draws


def draw_terminal(shown: Sequence[Shown], title: str) -> str:
    """Return a terminal with these commands as SVG; it loads nothing."""
    console = Console(
        record=True,
        file=io.StringIO(),
        width=COLUMNS,
        force_terminal=True,
        color_system="truecolor",
        highlight=False,
    )
    for one in shown:
        console.print(Text.assemble(("$ ", "bold green"), one.command))
        for part in one.output:
            console.print(Text.from_ansi(part) if isinstance(part, str) else part)
        console.print()
    return FONT_FACE.sub("", console.export_svg(title=title, unique_id="terminal"))
