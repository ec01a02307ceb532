"""Extract ZIP archives of any size from S3 to S3, in parallel, verified."""
