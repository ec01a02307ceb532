"""One task of a plan: read, inflate, check, write.

`task.run_task` is the entry point. `batch` extracts small members. `large_members` streams or
copies one large member. `split_members` divides a huge member among many tasks.
"""
