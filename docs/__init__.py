"""The documentation, and what writes its reference from the code."""
