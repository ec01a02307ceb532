"""The processes of a program, as Linux lists them below /proc."""

from __future__ import annotations

import time
from pathlib import Path


def descendants(pid: int) -> list[int]:
    """Return the ids of the processes that `pid` started, and of those that these started."""
    found: list[int] = []
    for task in _tasks(pid):
        try:
            children = (task / "children").read_text().split()
        except OSError:  # it ended
            continue
        for child in map(int, children):
            found += [child, *descendants(child)]
    return found


def is_running(pid: int) -> bool:
    """Say whether a process runs; one that has ended and is not yet reaped does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in {"Z", "X"}


def await_end(pids: list[int], seconds: float) -> list[int]:
    """Wait until none of the processes runs; return those that still do after `seconds`."""
    deadline = time.monotonic() + seconds
    while (left := [pid for pid in pids if is_running(pid)]) and time.monotonic() < deadline:
        time.sleep(0.01)
    return left


def _tasks(pid: int) -> list[Path]:
    try:
        return list(Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return []
