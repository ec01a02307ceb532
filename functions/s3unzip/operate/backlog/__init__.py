"""Backlogs: many archives that are already there, queued by one command, and their summary."""
