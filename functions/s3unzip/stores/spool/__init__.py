"""Archives that are kept in a temporary file while a command runs: a pipe, a download.

`cli.options.spooling` writes the file by `file.Spool`; `stores.factory` opens it as a source.
"""
