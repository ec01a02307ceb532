"""Decides the next round of a run, or ends it: writes the report and page, finds nested archives.

`loop` is the entry point; the functions on AWS and `local.machine` call it.
"""
