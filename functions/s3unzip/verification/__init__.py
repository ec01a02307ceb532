"""Compares the objects of a destination with an archive. Writes nothing."""
