"""The command line: JSON on stdout, progress on stderr, the exit code from the verdict."""
