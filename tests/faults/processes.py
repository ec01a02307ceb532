"""The processes of a program, as Linux lists them below /proc."""

from __future__ import annotations

import re
import signal
import time
from pathlib import Path

# proc_pid_stat(5): places in /proc/PID/stat, counted from the state, and a flag of the kernel.
PARENT, FLAGS, EXITING = 1, 6, 0x4
KILLED = 1 << (signal.SIGKILL - 1)  # in a mask of signals


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


def is_ending(pid: int) -> bool:
    """Say whether the kernel ends a process, or one above it, as soon as there is a processor.

    On a busy machine a process that has a pending SIGKILL may wait longer than a second for it.
    The processes below it get their SIGKILL when it ends.
    """
    while pid > 1:
        try:
            stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            status = Path(f"/proc/{pid}/status").read_text()
        except OSError:  # it has ended
            return True
        pending = re.findall(r"^(?:SigPnd|ShdPnd):\s*([0-9a-f]+)", status, re.MULTILINE)
        if int(stat[FLAGS]) & EXITING or any(int(mask, 16) & KILLED for mask in pending):
            return True
        pid = int(stat[PARENT])
    return False


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
