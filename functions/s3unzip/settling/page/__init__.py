"""The report page: one self-contained HTML file a run, ``report.html``.

`collect` reduces a run of any size to `PageData`; `render_page` converts it to HTML. Neither reads
or writes a store. Fill a `TaskTable` and a `SizeTable` while you read outcomes.
"""

from __future__ import annotations

from s3unzip.settling.page.collection import collect
from s3unzip.settling.page.data import PageData, Phase, SizeTable, TaskTable
from s3unzip.settling.page.document import render_page

__all__ = ["PageData", "Phase", "SizeTable", "TaskTable", "collect", "render_page"]
