"""What maintainers run: never shipped, never imported by the package."""
