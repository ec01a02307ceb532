"""The pictures of the documentation: what is drawn, and that they load nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

from rich.progress_bar import ProgressBar

from tests.docs.commands import ROOT
from tools.pictures.dashboard import SAID, draw_dashboard
from tools.pictures.terminal import Shown, draw_terminal

if TYPE_CHECKING:
    from collections.abc import Iterator

NAMES = ("terminal.svg", "dashboard.svg", "report-page.png", "report-page-dark.png")
SPACE = "{http://www.w3.org/2000/svg}"


def metric(view: str, title: str, *labels: str) -> dict[str, Any]:
    """Return the properties of a widget of metrics; the last metric is a hidden one."""
    rows: list[list[Any]] = [["s3unzip", "M", {"label": label}] for label in labels]
    return {"view": view, "title": title, "metrics": [*rows, ["N", "H", {"visible": False}]]}


BODY = {
    "widgets": [
        {"type": kind, "x": 0, "y": 6 * number, "width": 12, "height": 6, "properties": properties}
        for number, (kind, properties) in enumerate(
            [
                ("metric", metric("singleValue", "Archives", "completed", "failed")),
                ("metric", metric("timeSeries", "Members <of> runs", "written", "failed")),
                ("metric", metric("timeSeries", "S3 throttles", "all")),
                ("alarm", {"title": "Alarms", "alarms": ["<AlarmsFailedRuns0123ABCD.Arn>"]}),
                ("log", {"view": "table", "title": "Failures by reason", "query": "fields a"}),
                ("text", {"markdown": "## Do\n| a | b |\n| --- | --- |\n| [X](#y) | `run` |"}),
                ("text", {"markdown": "many words " * 500}),
            ]
        )
    ]
}


def read(picture: str) -> ET.Element:
    """Return a picture's elements."""
    return ET.fromstring(picture)  # noqa: S314 - drawn here


def texts(picture: str) -> Iterator[str]:
    """Yield the texts of a picture."""
    for element in read(picture).iter(f"{SPACE}text"):
        yield "".join(element.itertext()).replace("\xa0", " ")


def test_the_dashboard_is_drawn_from_its_body() -> None:
    """Titles, labels, alarms and words are the body's; the figures are called samples."""
    picture = draw_dashboard(BODY)
    found = list(texts(picture))
    assert SAID in found
    assert {"Archives", "completed", "1,284", "Members <of> runs", "OK  FailedRuns"} <= set(found)
    assert {"crc-mismatch", "Do", "X  \u2192  run"} <= set(found)
    assert draw_dashboard(BODY) == picture


def test_a_graph_has_a_line_for_each_metric_that_is_shown() -> None:
    """A hidden metric has none; throttles are flat at zero."""
    lines = list(read(draw_dashboard(BODY)).iter(f"{SPACE}polyline"))
    assert len(lines) == 3
    heights = [{point.split(",")[1] for point in one.attrib["points"].split()} for one in lines]
    assert len(heights[0]) > 10
    assert len(heights[2]) == 1


def test_the_terminal_is_drawn_and_loads_nothing() -> None:
    """Commands, plain output and what Rich draws; no font of another server."""
    bar = ProgressBar(total=1.0, completed=0.5, width=10)
    picture = draw_terminal([Shown("s3unzip ls a.zip", ["1 file", bar])], "s3unzip")
    found = "".join(texts(picture))
    assert "$ s3unzip ls a.zip" in found
    assert "1 file" in found
    assert "font-face" not in picture
    assert "url(http" not in picture


def test_every_picture_is_there_and_used() -> None:
    """Each picture of `make pictures` is in docs/images, and a page shows it."""
    pages = "".join(
        page.read_text("utf-8") for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"))
    )
    assert {one.name for one in (ROOT / "docs" / "images").iterdir()} == set(NAMES)
    assert all(f"images/{name}" in pages for name in NAMES)
