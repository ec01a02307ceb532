"""One task of a plan: read, inflate, check, write.

`task.run_task` is the entry point. `batch` extracts small members. `stream` and `copies` do one
large member. `scan`, `link` and `slices` divide a huge deflated member over many tasks.
"""
