"""Processes on this machine: how workers are forked, and which processors and memory they use.

`local.pool` uses these modules, and nothing below them is of the pipeline.
"""
