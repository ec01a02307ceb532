"""The Lambda functions: `intake`, `plan`, `extract` and `settle` have a handler each.

The other modules serve these handlers: settings, events, metrics, starts of executions. `operate`
reads what they write. Lower packages do not import them.
"""
