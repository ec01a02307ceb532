"""Amazon S3 and S3-compatible servers: sources, destinations, run stores, error translation.

obstore moves the bytes of members. botocore does what obstore cannot do.
"""
