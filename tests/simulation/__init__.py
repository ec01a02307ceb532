"""A deterministic simulation of whole runs: the real steps over simulated services, by a seed."""
