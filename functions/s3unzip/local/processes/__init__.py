"""Processes on this machine: how workers are forked, and which processors and memory they use."""
