"""The report page: one self-contained HTML file a run, ``report.html``.

`collect` reduces a run to `PageData`, whatever its size; `render_page` writes
that as HTML. Neither reads nor writes a store. Feed a `TaskTable` and a
`SizeTable` while outcomes are read, or hand `collect` what can be iterated.
"""

from __future__ import annotations

from s3unzip.reporting.page.collection import collect
from s3unzip.reporting.page.data import PageData, Phase
from s3unzip.reporting.page.document import render_page
from s3unzip.reporting.page.tables import SizeTable, TaskTable

__all__ = ["PageData", "Phase", "SizeTable", "TaskTable", "collect", "render_page"]
