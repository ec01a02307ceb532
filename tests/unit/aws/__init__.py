"""Tests of what the functions share."""
