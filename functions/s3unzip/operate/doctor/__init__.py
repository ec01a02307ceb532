"""``s3unzip doctor``: checks of a deployed environment, each a function that gives one answer.

`diagnosis.examine` runs all of them; a new check is a function and a line in `diagnosis.CHECKS`.
"""
