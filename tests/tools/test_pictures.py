"""The pictures of the documentation are there, and load nothing."""

from tests.docs.commands import ROOT

NAMES = ("terminal.svg", "report-page.png", "report-page-dark.png")


def test_every_picture_is_there_and_used() -> None:
    """Each picture of `make pictures` is in docs/images, and a page shows it."""
    pages = (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"))
    text = "".join(page.read_text("utf-8") for page in pages)
    assert {one.name for one in (ROOT / "docs" / "images").iterdir()} == set(NAMES)
    assert all(f"images/{name}" in text for name in NAMES)


def test_the_terminal_loads_nothing() -> None:
    """It shows commands, and asks no other server for a font."""
    picture = (ROOT / "docs" / "images" / "terminal.svg").read_text("utf-8")
    assert "s3unzip&#160;run" in picture
    assert "font-face" not in picture
    assert "url(http" not in picture
