"""HEAD and LIST with little CPU. A verify consists of them.

Only `stores.s3` imports these modules; boto3 takes over what they cannot do.
"""
