"""Amazon S3 and S3-compatible servers: sources, destinations, run stores, error translation.

obstore does the data path. botocore does what obstore cannot.
"""
