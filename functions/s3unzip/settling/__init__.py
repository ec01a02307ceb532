"""The loop of a run and its end: the next round, the report and its page, nested archives.

`loop` is the entry point; the functions on AWS and `local.machine` call it.
"""
