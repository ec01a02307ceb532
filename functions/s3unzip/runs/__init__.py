"""Read, write and watch the records of a run in its store; list runs."""
