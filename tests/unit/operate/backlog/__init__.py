"""Tests of backlogs."""
