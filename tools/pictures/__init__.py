"""The pictures of README and docs/images: `make pictures` makes them again."""
