"""The records of a run in its store: reading, writing and watching them; the lists of runs."""
