"""Runs on one machine: worker processes, locking, nested archives.

`machine.Machine` is the entry point; `api`, `cli` and `operate` use it. It knows no AWS service.
"""
