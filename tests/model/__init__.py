"""An executable model of runs, written from the documents."""
