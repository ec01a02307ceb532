"""The Lambda functions: the modules `intake`, `plan`, `extract` and `settle` have one handler each.

The other modules serve these handlers: settings, events, metrics and the start of executions.
`operate` reads what the functions write. Lower packages do not import this package.
"""
