"""The public functions: `open_archive`, `extract` and `verify`.

Import them from `s3unzip`. The modules of this package may change. The command line uses the same
functions.
"""
