"""The records of a run in its store: reading, writing and watching them; also the lists of runs."""
