"""Runs on one machine: worker processes, locking, nested archives.

`machine.Machine` is the entry point; `api`, `cli` and `operate` use it. It does not depend on any
AWS service.
"""
