"""Decides the next round of a run, or ends the run.

At the end of a run, this package writes the report and the page, and finds nested archives.

`loop` is the entry point; the functions on AWS and `local.machine` call it.
"""
