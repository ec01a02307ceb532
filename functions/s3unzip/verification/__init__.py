"""Compares the objects of a destination with an archive. Writes nothing.

`archive.verify_objects` is the entry point; `api` calls it.
"""
