"""Mutation testing of the modules in ``targets.toml``; docs/contributing/testing.md explains it.

A mutant is a copy of the package with one small fault. The tests of its module must fail on it.
A mutant on which they pass survives, and shows a test that is missing.
"""
