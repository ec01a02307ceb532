"""Plan, extract, link, report: the work itself, over ports; no boto3, no file system."""
