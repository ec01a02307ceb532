"""Sessions and clients of AWS services: the only place that makes them.

`aws_session` makes them with boto3. `variables` reads the settings that environment variables alone
decide, so that many processes never import boto3.
"""

from s3unzip.clients.aws_session import AwsSession, preload

__all__ = ["AwsSession", "preload"]
