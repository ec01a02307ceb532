"""Processes of this machine: how workers are forked, and what each may use."""
