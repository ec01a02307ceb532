"""Decides the next round of a run, or ends the run: its report, its page and nested archives.

`loop` is the entry point; the functions on AWS and `local.machine` call it.
"""
