"""The commands, by what they work on: an archive, a run to do, past runs.

`cli.loading` imports the module of a command when it is called. Commands import heavy modules late.
"""
