"""Tests of the end of a run."""
