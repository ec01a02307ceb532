"""The pictures of the documentation: what is drawn, and that they load nothing."""

from collections.abc import Iterator
from xml.etree import ElementTree as ET

from rich.progress_bar import ProgressBar

from tests.docs.commands import ROOT
from tools.pictures import draw_terminal

NAMES = ("terminal.svg", "report-page.png", "report-page-dark.png")
SPACE = "{http://www.w3.org/2000/svg}"


def read(picture: str) -> ET.Element:
    """Return a picture's elements."""
    return ET.fromstring(picture)  # noqa: S314 - drawn here


def texts(picture: str) -> Iterator[str]:
    """Yield the texts of a picture."""
    for element in read(picture).iter(f"{SPACE}text"):
        yield "".join(element.itertext()).replace("\xa0", " ")


def test_the_terminal_is_drawn_and_loads_nothing() -> None:
    """Commands, plain output and what Rich draws; no font of another server."""
    bar = ProgressBar(total=1.0, completed=0.5, width=10)
    picture = draw_terminal({"s3unzip ls a.zip": ["1 file", bar]})
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
