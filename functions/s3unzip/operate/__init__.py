"""Commands on a deployed environment: find the stack, list, redrive and abort its runs.

`runs.DeployedRuns` is the entry point; only `cli` imports this package.
"""
