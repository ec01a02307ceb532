"""The code of the Lambda functions around the pipeline: settings, events, metrics, budget."""
