"""What a function does when a run has ended."""
