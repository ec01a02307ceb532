"""What is measured, and against what; bench/README.md says how to run each."""
