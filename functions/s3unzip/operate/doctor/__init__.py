"""``s3unzip doctor``: checks of a deployed environment, each a function that gives one result."""
