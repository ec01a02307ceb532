"""Backlogs: many archives that are already there, queued by one command, and their summary.

`submitting` queues, `summary` looks at the ends; `records` alone reads and writes their objects.
"""
