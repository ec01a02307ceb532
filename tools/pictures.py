"""`python -m tools.pictures`: makes the pictures in docs/images again.

The terminal shows real commands against a local S3 server (VersityGW) and a made-up archive. The
report page is of a made-up run, in Chromium.
"""

from __future__ import annotations

import io
import os
import random
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console, RenderableType
from rich.text import Text

import s3unzip
from bench.server import s3_server
from s3unzip.cli.look import print_verification
from s3unzip.cli.output import print_report
from s3unzip.cli.progress import RunDisplay
from s3unzip.settings import make_tuning
from tests.browser.chromium import Screen, find_chromium
from tests.support.reports import failing, page, plain_failures
from tests.support.zips import DEFLATE, Entry, build as build_zip

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"
HEIGHT = 1_150  # CSS pixels of the report page
COLUMNS = 96
ARCHIVE, DESTINATION = "s3://ingest/orders.zip", "s3://extracted"
DONE = 0.3  # from this share on the progress is kept
FONT_FACE = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)  # loads a font from another server


def main() -> None:
    """Make all pictures."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        (IMAGES / "terminal.svg").write_text(show_terminal(Path(folder)), "utf-8")
        show_page(Path(folder))


def show_terminal(folder: Path) -> str:
    """Run commands against a local S3 server; return what they showed as SVG."""
    body = random.Random(1).randbytes(2_000)  # noqa: S311 - any bytes
    entries = [Entry(f"2026/{n // 400:03}/order-{n:05}.csv", body, DEFLATE) for n in range(20_000)]
    with s3_server("ingest", "extracted", in_memory=True) as client:
        client.put_object(Bucket="ingest", Key="orders.zip", Body=build_zip(*entries))
        os.environ |= {"S3UNZIP_HOME": str(folder / "s3unzip"), "COLUMNS": str(COLUMNS)}
        recorder = Recorder()
        tuning = make_tuning({"max_workers": 2, "batch_members": 1_000})
        report = s3unzip.extract(ARCHIVE, DESTINATION, tuning=tuning, progress=recorder)
        found = s3unzip.verify(ARCHIVE, DESTINATION)
    ended, verified = io.StringIO(), io.StringIO()
    print_report(report, ended)
    print_verification(found, verified)
    return draw_terminal(
        {
            f"s3unzip run {ARCHIVE} {DESTINATION}": [
                *recorder.frame,
                ended.getvalue().rstrip().replace(str(folder), "/home/me/.local/state"),
            ],
            f"s3unzip verify {ARCHIVE} {DESTINATION}": [verified.getvalue().rstrip()],
        }
    )


class Recorder(RunDisplay):
    """Keeps the live progress as it stands when `DONE` is reached."""

    def __init__(self) -> None:
        super().__init__(quiet=True)
        self.frame: list[RenderableType] = []

    def finished(self, counts: Mapping[str, int]) -> None:
        """Take increments."""
        super().finished(counts)
        share = self.figures().share
        if share is not None and DONE <= share < 1 and not self.frame:
            self.frame.append(self.draw())


def draw_terminal(shown: Mapping[str, Sequence[RenderableType]]) -> str:
    """Return a terminal with commands and what they printed as SVG; it loads nothing."""
    console = Console(
        record=True,
        file=io.StringIO(),
        width=COLUMNS,
        force_terminal=True,
        color_system="truecolor",
        highlight=False,
    )
    for command, output in shown.items():
        console.print(Text.assemble(("$ ", "bold green"), command))
        for part in output:
            console.print(Text.from_ansi(part) if isinstance(part, str) else part)
        console.print()
    return FONT_FACE.sub("", console.export_svg(title="s3unzip", unique_id="terminal"))


def show_page(folder: Path) -> None:
    """Write the report page of a made-up run as the browser shows it, light and dark."""
    paths = find_chromium()
    if paths is None:
        sys.exit("make pictures needs chromium and chromedriver on the PATH")
    screen = Screen(paths, folder)
    try:
        for name, dark in (("report-page.png", False), ("report-page-dark.png", True)):
            screen.show(page(failing(plain_failures(6))), dark=dark, zoom=1.5)
            (IMAGES / name).write_bytes(screen.picture(HEIGHT))
    finally:
        screen.close()


if __name__ == "__main__":
    main()
