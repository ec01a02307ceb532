"""Checks that the planner has enough memory for the largest directory that the limits accept.

Lambda kills a function that runs out of memory, and the run would fail.
"""

from __future__ import annotations

import math

from s3unzip.settings import MIB

# `s3unzip.zip.Limits` gives the bound: bytes a member, the names, and twice
# `folder_memory`. 273 bytes a member, short names included, were measured with 5,000,000.
MEMBER_BYTES = 300
FOLDERS_MB = 64
BASE_MB = 256  # the interpreter with its libraries
DEFAULT_MEMBERS = 10_000_000  # defaults of `Limits`, if the environment sets none
DEFAULT_NAMES_SIZE = 1024 * MIB


def plan_memory(members: int, names_size: int) -> int:
    """Return the memory, in MB, that a plan with these members and bytes of names needs."""
    return BASE_MB + FOLDERS_MB + math.ceil((members * MEMBER_BYTES + names_size) / MIB)


def explain_shortage(memory: int, members: int | None, names_size: int | None) -> str | None:
    """Return a message if `functions.planner.memory` is too small, else None.

    Args:
        memory: of the planner, in MB.
        members: `limits.members`; None: the default.
        names_size: `limits.names_size`, in bytes; None: the default.
    """
    members = members or DEFAULT_MEMBERS
    names_size = names_size or DEFAULT_NAMES_SIZE
    needed = plan_memory(members, names_size)
    if needed <= memory:
        return None
    spare = memory - plan_memory(0, names_size)
    fitting = max(0, spare * MIB // MEMBER_BYTES)
    return (
        f"functions.planner.memory: {memory} MB is too little for limits.members ({members:,}) and "
        f"limits.names_size ({names_size:,} bytes), which take {needed:,} MB: raise it, or set "
        f"limits.members to at most {fitting:,}"
    )
