"""Compares the objects of a destination with an archive. Writes nothing.

`verifying.verify_objects` is the entry point; `api` calls it.
"""
