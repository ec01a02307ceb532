"""Archives that are kept in a temporary file while a command runs: a pipe, a download."""
