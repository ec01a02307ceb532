"""Amazon S3 and S3-compatible servers: sources, destinations, run stores, error translation.

obstore does the data path. boto3 does what obstore cannot (`boto_fallback`).
"""
