"""The command line: JSON on stdout, progress on stderr, the exit code from the verdict.

`main` is the entry point. Nothing imports this package; it may import all others but `handlers`.
"""
