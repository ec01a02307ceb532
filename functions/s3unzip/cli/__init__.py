"""The command line: JSON on stdout, progress on stderr, an exit code that reflects the verdict.

`main` is the entry point. No other package imports this one.
"""
