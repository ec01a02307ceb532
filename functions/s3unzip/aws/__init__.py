"""The Lambda functions: `intake`, `plan`, `extract` and `settle` have a handler each.

The other modules are what they need: settings, events, metrics, starts of executions. `operate`
reads what they write; nothing below imports them.
"""
