"""Reports the cost of a command's processes: ``python -m bench.launch FD COMMAND...``.

This is a separate, small process. The kernel's peak resident set of a command begins at that of the
process that forked it, so a bench with an archive in memory would measure itself.
"""

import contextlib
import ctypes
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36  # prctl(2)


def main(arguments: list[str]) -> int:
    """Run a command; write CPU seconds and peak MB, as JSON, to a file descriptor."""
    # Become the parent of orphaned processes. Otherwise no process waits for a fork server's
    # workers, and their CPU is not counted.
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    told = int(arguments[0])
    process = subprocess.Popen(arguments[1:])
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    usages = [usage, *_reap()]
    cpu = sum(one.ru_utime + one.ru_stime for one in usages)
    peak = max(one.ru_maxrss for one in usages) / 1024
    with os.fdopen(told, "w") as file:
        json.dump([cpu, peak], file)
    return process.returncode


def _reap() -> list[resource.struct_rusage]:
    usages = []
    for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
        with contextlib.suppress(ChildProcessError):
            usages.append(os.wait4(int(pid), 0)[2])
    return usages


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
