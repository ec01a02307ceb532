"""What the Lambda functions need around the pipeline: settings, events, metrics, budget."""
