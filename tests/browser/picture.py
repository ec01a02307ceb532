"""Takes the picture of the report page for the README: ``python -m tests.browser.picture``."""

from __future__ import annotations

import tempfile
from pathlib import Path

from s3unzip.pipeline.page import render_page
from tests.browser.chromium import Screen, find_chromium
from tests.unit.page.samples import million

PICTURE = Path(__file__).parents[2] / "docs" / "images" / "report-page.png"
HEIGHT = 1_320  # CSS pixels: the first screen, the timeline and one chart


def main() -> None:
    """Write the picture."""
    paths = find_chromium()
    if paths is None:
        raise SystemExit("needs chromium and chromedriver on the PATH")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        screen = Screen(paths, Path(folder) / "profile")
        try:
            screen.set_up(zoom=1.5)
            screen.show(render_page(million()), Path(folder) / "report.html")
            PICTURE.parent.mkdir(parents=True, exist_ok=True)
            PICTURE.write_bytes(screen.picture(HEIGHT))
        finally:
            screen.close()


if __name__ == "__main__":
    main()
