"""The checks of `s3unzip doctor`, one by one."""
