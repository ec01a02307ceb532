"""The public functions: `open_archive`, `extract` and `verify`.

Import these functions from `s3unzip`, because the modules of this package may change. The command
line uses the same functions.
"""
