"""The Lambda functions: event -> value -> pipeline call -> JSON, and nothing else."""
