"""What an archive's event leads to: a direct run, an execution, or a refusal."""
