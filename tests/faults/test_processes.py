"""What the harness says of processes that the kernel is about to end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.processes import await_end, descendants, is_ending, is_running
from tests.patience import HANG_SECONDS

pytestmark = pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="needs Linux's /proc")


def test_a_killed_process_is_ending() -> None:
    """A process that was killed is ending, whether or not it had a processor since."""
    with subprocess.Popen(["sleep", "60"]) as process:
        assert is_running(process.pid)
        assert not is_ending(process.pid)
        process.kill()
        assert is_ending(process.pid)
        assert await_end([process.pid], HANG_SECONDS) == []
        assert is_ending(process.pid)  # it is not reaped yet
    assert is_ending(process.pid)


def test_what_is_below_a_killed_process_is_ending() -> None:
    """The processes below a killed one are told to end when it ends."""
    program = "import subprocess; subprocess.run(['sleep', '60'])"
    with subprocess.Popen([sys.executable, "-c", program]) as parent:
        while not (below := descendants(parent.pid)):
            assert parent.poll() is None
        assert not is_ending(below[0])
        subprocess.run(["kill", "-STOP", str(below[0])], check=True)
        subprocess.run(["kill", "-KILL", str(below[0])], check=True)
        assert is_ending(below[0])
        assert await_end(below, HANG_SECONDS) == []
        parent.wait(HANG_SECONDS)
