"""The end of a run: outcomes, report, report page, retries, nested runs."""
