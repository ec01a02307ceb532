"""Amazon S3 and what speaks its protocol, and the other AWS services; the only place of boto3."""
