"""The Lambda functions. Each converts its event, calls the pipeline, and returns JSON."""
