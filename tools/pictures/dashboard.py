"""Draws the CloudWatch dashboard as SVG from the body that the CDK writes.

The places, titles and labels are the dashboard's own. The figures are samples; the picture says
so.
"""

from __future__ import annotations

import html
import math
import random
import re
import textwrap
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

COLUMN, ROW = 50, 32  # pixels of one unit of the dashboard's grid
COLUMNS = 24
TOP = 34  # of the grid: the line that says that the figures are samples
GAP = 4
CHAR = 6.1  # pixels of a letter of 11 px
POINTS = 48
COLOURS = ("#1f77b4", "#2ca02c", "#d62728", "#9467bd", "#ff7f0e", "#17becf", "#8c564b", "#7f7f7f")
STYLE = 'font-family="Helvetica, Arial, sans-serif" font-size="11" fill="#16191f"'
SAID = "Sample figures: drawn from the dashboard's definition, not from an account."
NUMBERS = {
    "completed": "1,284",
    "with errors": "3",
    "rejected": "2",
    "changed in mid-run": "0",
    "failed": "0",
    "Members written": "4.1M",
    "Put to done (s)": "18.4",
    "Dollars, estimated at us-east-1": "21.7",
}
ROWS = {
    "Failures by reason": (("crc-mismatch", "41"), ("corrupt-stream", "7"), ("encrypted", "2")),
    "Last runs that did not complete": (
        ("partner-2026-11-3f1c9a", "COMPLETED_WITH_ERRORS", "crc-mismatch"),
        ("upload-17-9b2d41", "REJECTED", "no-eocd"),
    ),
}
# What is zero on a good day.
QUIET = re.compile(r"dead letter|throttle|handed over|function errors", re.IGNORECASE)


def draw_dashboard(body: Mapping[str, Any]) -> str:
    """Return the dashboard with this body as SVG."""
    bottom = max(one["y"] + one["height"] for one in body["widgets"])
    width, height = COLUMNS * COLUMN, TOP + bottom * ROW
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" {STYLE}>',
        f'<rect width="{width}" height="{height}" fill="#f2f3f3"/>',
        _text(10, 21, SAID, size=13, style='fill="#545b64" font-style="italic"'),
    ]
    for widget in body["widgets"]:
        parts += _draw_widget(widget)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _draw_widget(widget: Mapping[str, Any]) -> Iterator[str]:
    x, y = widget["x"] * COLUMN + GAP, TOP + widget["y"] * ROW + GAP
    width, height = widget["width"] * COLUMN - 2 * GAP, widget["height"] * ROW - 2 * GAP
    properties = widget["properties"]
    yield f'<svg x="{x}" y="{y}" width="{width}" height="{height}">'
    yield f'<rect width="{width}" height="{height}" fill="#fff" stroke="#d5dbdb"/>'
    title = properties.get("title", "")
    if title:
        size = min(13.0, 1.75 * (width - 12) / len(title))
        yield _text(10, 20, title, size=size, style='font-weight="bold"')
    match widget["type"], properties.get("view"):
        case "text", _:
            yield from _draw_markdown(properties["markdown"], width, height)
        case "alarm", _:
            yield from _draw_alarms(properties["alarms"], width)
        case "log", _:
            yield from _draw_rows(ROWS.get(title, ()), width)
        case "metric", "singleValue":
            yield from _draw_numbers(title, _labels(properties), width, height)
        case _:
            yield from _draw_graph(title, _labels(properties), width, height)
    yield "</svg>"


def _labels(properties: Mapping[str, Any]) -> list[str]:
    """Return the labels of the metrics that are shown."""
    options = [row[-1] for row in properties["metrics"] if isinstance(row[-1], dict)]
    return [one["label"] for one in options if one.get("visible", True) and "label" in one]


def _draw_markdown(markdown: str, width: float, height: float) -> Iterator[str]:
    plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", markdown).replace("`", "")
    plain = re.sub(r"<(\w+?)[0-9A-F]{8}(\.\w+)?>", r"\1", plain)
    at = 22.0
    for line in plain.splitlines():
        if line.startswith("## "):
            yield _text(10, at, line[3:], size=15, style='font-weight="bold"')
            at += 20
            continue
        if set(line) <= set("|- "):
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        for piece in textwrap.wrap("  \u2192  ".join(cells), int(width / CHAR)):
            if at > height - 8:
                return
            yield _text(10, at, piece)
            at += 15


def _draw_alarms(alarms: Sequence[str], width: float) -> Iterator[str]:
    """Draw a green box for each alarm; a name is its logical id without prefix and hash."""
    each = (width - 30) / 2
    for number, alarm in enumerate(alarms):
        name = re.sub(r"<?Alarms|[0-9A-F]{8}|\.Arn>?", "", alarm)
        x, y = 10 + number % 2 * (each + 10), 34 + number // 2 * 38
        yield f'<rect x="{x:g}" y="{y}" width="{each:g}" height="32" fill="#e9f5e1"/>'
        yield f'<rect x="{x:g}" y="{y}" width="4" height="32" fill="#1d8102"/>'
        yield _text(x + 12, y + 20, f"OK  {name}")


def _draw_rows(rows: Sequence[Sequence[str]], width: float) -> Iterator[str]:
    for number, row in enumerate(rows):
        y = 46 + 20 * number
        for at, cell in enumerate(row):
            yield _text(10 + at * (width - 20) / len(row), y, cell)
        yield f'<path d="M10 {y + 6}H{width - 10}" stroke="#eaeded"/>'


def _draw_numbers(title: str, labels: Sequence[str], width: float, height: float) -> Iterator[str]:
    each = (width - 20) / max(1, len(labels))
    for number, label in enumerate(labels):
        value = NUMBERS.get(label) or NUMBERS.get(title, "0")
        x = 10 + number * each
        yield _text(x, height - 44, value, size=26, style='font-weight="bold"')
        yield _text(x, height - 22, _cut(label, int(each / CHAR)) if len(labels) > 1 else "")


def _draw_graph(title: str, labels: Sequence[str], width: float, height: float) -> Iterator[str]:
    shown = labels[: len(COLOURS)]
    columns = max(1, int((width - 10) // 110))
    legend = math.ceil(len(shown) / columns) * 14
    left, top, right, bottom = 34, 32, width - 10, height - 14 - legend
    for share in (0.0, 0.5, 1.0):
        y = bottom - share * (bottom - top)
        yield f'<path d="M{left} {y:.1f}H{right:g}" stroke="#eaeded"/>'
    for number, label in enumerate(shown):
        points = [
            f"{left + at * (right - left) / (POINTS - 1):.1f},{bottom - value * (bottom - top):.1f}"
            for at, value in enumerate(_sample(title, label, number))
        ]
        colour = COLOURS[number]
        yield f'<polyline points="{" ".join(points)}" fill="none" stroke="{colour}"/>'
        x, y = 10 + number % columns * 110, height - legend + number // columns * 14
        yield f'<rect x="{x}" y="{y - 8}" width="8" height="8" fill="{colour}"/>'
        yield _text(x + 12, y, _cut(label, 17))


def _sample(title: str, label: str, number: int) -> Iterator[float]:
    """Yield made-up values from 0 to 1; the same each time."""
    dice = random.Random(f"{title}/{label}")  # noqa: S311 - a drawing
    if QUIET.search(title):
        yield from [0.0] * POINTS
        return
    level = {0: 0.35, 1: 0.55, 2: 0.75}.get(number, 0.25)
    for at in range(POINTS):
        wave = 1 + 0.25 * math.sin(at / 7 + number)
        yield min(1.0, max(0.0, level * wave + dice.gauss(0, 0.035)))


def _cut(text: str, chars: int) -> str:
    return text if len(text) <= chars else f"{text[: chars - 1]}\u2026"


def _text(x: float, y: float, text: str, *, size: float = 11, style: str = "") -> str:
    return f'<text x="{x:g}" y="{y:g}" font-size="{size:g}" {style}>{html.escape(text)}</text>'
