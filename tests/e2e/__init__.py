"""The deployed pipeline, end to end."""
