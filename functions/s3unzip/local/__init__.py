"""Runs on one machine: worker processes, locking, nested archives."""
