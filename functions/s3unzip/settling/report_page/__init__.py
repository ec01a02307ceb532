"""``report.html``: the page of a report, for people."""
