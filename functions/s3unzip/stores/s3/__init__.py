"""Amazon S3 and S3-compatible servers: sources, destinations, clients, keys, error translation.

obstore sends ordinary GET, PUT and HEAD requests. botocore sends all other requests.
"""
