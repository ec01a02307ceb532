"""What an archive's event leads to: a direct run, an execution, or a refusal.

`archive.take_archive` is the entry point of function `plan`, `planner.plan_run` that of `planner`.
"""
