"""The rules that the embedded AWS adds to MiniStack."""
