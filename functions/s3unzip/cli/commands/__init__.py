"""The commands, by what they work on: an archive, a run to do, runs that were."""
