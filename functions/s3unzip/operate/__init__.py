"""Operations on a deployed environment: find the stack; list, resume and abort its runs.

`runs.DeployedRuns` is the entry point; `cli` and the acceptance tests import this package.
"""
