"""The report page: one self-contained HTML file a run, ``report.html``.

`collect` reduces a run to `PageData`, whatever its size; `render_page` writes
that as HTML. Neither reads nor writes a store.
"""

from __future__ import annotations

from s3unzip.pipeline.page.collection import bin_sizes, collect
from s3unzip.pipeline.page.data import CostLine, Forecast, PageData, Phase, SizeBin
from s3unzip.pipeline.page.document import render_page

__all__ = [
    "CostLine",
    "Forecast",
    "PageData",
    "Phase",
    "SizeBin",
    "bin_sizes",
    "collect",
    "render_page",
]
