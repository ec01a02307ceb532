"""Admission: how the runs of an environment share its workers.

Use `opening.open_door`; `ledger` is also read by `operate`.
"""
