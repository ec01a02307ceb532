"""The Lambda functions: the modules `intake`, `plan`, `extract` and `settle` have one handler each.

The other modules contain what the handlers share: settings, events, metrics, executions.
`operate` reads what the functions write. Lower packages do not import this package.
"""
