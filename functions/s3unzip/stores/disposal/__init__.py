"""Deletes, moves and tags archives that are extracted."""
