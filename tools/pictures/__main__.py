"""`python -m tools.pictures`: makes the pictures in docs/images again.

The terminal shows real commands against a local S3 server (VersityGW) and a made-up archive. The
report page is of a made-up run, in Chromium. The dashboard is drawn from its definition.
"""

from __future__ import annotations

import io
import json
import os
import random
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import boto3

import s3unzip
from bench.server import s3_server
from infra.application import Application, build
from infra.environment import load_environment
from s3unzip.cli.output import RunOutput, print_report
from s3unzip.cli.verify import print_verification
from s3unzip.settings import make_tuning
from s3unzip.settling.page import render_page
from tests.browser.chromium import Screen, find_chromium
from tests.infra.dashboards import read_dashboard
from tests.infra.templates import Synthesized
from tests.unit.settling.page.samples import split
from tests.zips import DEFLATE, Entry
from tests.zips import build as build_zip
from tools.pictures.dashboard import draw_dashboard
from tools.pictures.terminal import COLUMNS, Shown, draw_terminal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.table import Table

IMAGES = Path(__file__).resolve().parents[2] / "docs" / "images"
HEIGHT = 1_150  # CSS pixels of the report page: the first screen and the timeline
ARCHIVE, DESTINATION = "s3://ingest/orders.zip", "s3://extracted"
MEMBERS = 20_000
TUNING = make_tuning({"max_workers": 2, "batch_members": 1_000})
DONE = 0.3  # from this share on the progress is kept


def main() -> None:
    """Make all pictures."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        (IMAGES / "dashboard.svg").write_text(draw_dashboard(read_body(Path(folder))), "utf-8")
        (IMAGES / "terminal.svg").write_text(show_terminal(Path(folder)), "utf-8")
        show_page(Path(folder))


def read_body(folder: Path) -> dict[str, object]:
    """Return the body of the dashboard of the environment dev."""
    from aws_cdk import aws_lambda  # noqa: PLC0415 - after `infra`: it names the Node

    asset, out = folder / "asset", folder / "out"
    asset.mkdir()
    (asset / "s3unzip.txt").write_text("the package", "utf-8")
    environment = load_environment("dev")
    build(Application(out), environment, aws_lambda.Code.from_asset(str(asset)))
    (path,) = out.glob("*.template.json")
    return read_dashboard(Synthesized(environment, path, json.loads(path.read_text("utf-8"))))


def show_terminal(folder: Path) -> str:
    """Run commands against a local S3 server; return what they showed as SVG."""
    body = random.Random(1).randbytes(2_000)  # noqa: S311 - any bytes
    entries = [Entry(f"2026/{n // 400:03}/order-{n:05}.csv", body, DEFLATE) for n in range(MEMBERS)]
    with s3_server(in_memory=True):
        client = boto3.client("s3")
        for bucket in ("ingest", "extracted"):
            client.create_bucket(Bucket=bucket)
        client.put_object(Bucket="ingest", Key="orders.zip", Body=build_zip(*entries))
        os.environ |= {"S3UNZIP_HOME": str(folder / "runs"), "COLUMNS": str(COLUMNS)}
        recorder = Recorder()
        report = s3unzip.extract(ARCHIVE, DESTINATION, tuning=TUNING, progress=recorder)
        found = s3unzip.verify(ARCHIVE, DESTINATION)
    ended, verified = io.StringIO(), io.StringIO()
    print_report(report, ended)
    print_verification(found, verified)
    return draw_terminal(
        [
            Shown(
                f"s3unzip run {ARCHIVE} {DESTINATION}", [*recorder.frame, ended.getvalue().rstrip()]
            ),
            Shown(f"s3unzip verify {ARCHIVE} {DESTINATION}", [verified.getvalue().rstrip()]),
        ],
        "s3unzip",
    )


class Recorder(RunOutput):
    """Keeps the live progress as it stands when `DONE` is reached."""

    def __init__(self) -> None:
        super().__init__(quiet=True, json=False)
        self.frame: list[Table] = []

    def finished(self, counts: Mapping[str, int]) -> None:
        """Take increments."""
        super().finished(counts)
        share = self.figures().share
        if share is not None and DONE <= share < 1 and not self.frame:
            self.frame.append(self.draw())


def show_page(folder: Path) -> None:
    """Write the report page of a made-up run as the browser shows it, light and dark."""
    paths = find_chromium()
    if paths is None:
        sys.exit("make pictures needs chromium and chromedriver on the PATH")
    screen = Screen(paths, folder / "profile")
    try:
        for name, dark in (("report-page.png", False), ("report-page-dark.png", True)):
            screen.set_up(dark=dark, zoom=1.5)
            screen.show(render_page(split()), folder / "report.html")
            (IMAGES / name).write_bytes(screen.picture(HEIGHT))
    finally:
        screen.close()


if __name__ == "__main__":
    main()
