"""Deletes, moves and tags archives that are extracted.

`stores.factory` opens these adapters; `settling.after_success` uses them by `disposal_port`.
"""
