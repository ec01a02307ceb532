"""One task of a plan: read, inflate, check, write.

`task.run_task` is the entry point. Small members go through `batch`, large ones through
`stream` or `copy`; `split` divides one huge deflated member over many tasks.
"""
