"""Amazon S3 and S3-compatible servers: sources, destinations, run stores, error translation.

obstore transfers the bytes of members. botocore does everything that obstore cannot do.
"""
