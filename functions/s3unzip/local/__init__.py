"""Runs on one machine: worker processes, locking, nested archives.

`machine.Machine` is the entry point, which `api` and `cli` use. This package does not depend on any
AWS service.
"""
