"""The end of a run: outcomes, report, report page, retries, nested runs.

`settle.settle` is the entry point; `local`, `direct` and the function `report` call it.
"""
