"""One task of a plan: read, inflate, check, write.

`task.run_task` is the entry point. Small members go through `batch`, large ones through `large`,
or `slices`, which divides one huge deflated member over many tasks.
"""
