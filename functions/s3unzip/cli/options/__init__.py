"""Options that commands share, in groups, and the values that they stand for.

Only `cli.commands` imports these modules. `groups` makes a group from a dataclass.
"""
