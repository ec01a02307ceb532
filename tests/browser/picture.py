"""Takes the picture of a report page for the README.

``python -m tests.browser.picture [report.html]``: of that page, or of a made-up run.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from s3unzip.reporting.page import render_page
from tests.browser.chromium import Screen, find_chromium
from tests.unit.reporting.page.samples import split

PICTURE = Path(__file__).parents[2] / "docs" / "images" / "report-page.png"
HEIGHT = 1_235  # CSS pixels: the first screen and the timeline


def main() -> None:
    """Write the picture."""
    paths = find_chromium()
    if paths is None:
        raise SystemExit("needs chromium and chromedriver on the PATH")
    page = Path(sys.argv[1]).read_bytes() if len(sys.argv) > 1 else render_page(split())
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        screen = Screen(paths, Path(folder) / "profile")
        try:
            screen.set_up(zoom=1.5)
            screen.show(page, Path(folder) / "report.html")
            PICTURE.parent.mkdir(parents=True, exist_ok=True)
            PICTURE.write_bytes(screen.picture(HEIGHT))
        finally:
            screen.close()


if __name__ == "__main__":
    main()
