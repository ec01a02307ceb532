"""From an archive to tasks: read the directory, select members, build keys, cut the work.

`plan.make_plan` is the entry point.
"""
