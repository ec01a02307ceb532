"""The benches; bench/README.md says what each measures and how to run it."""
