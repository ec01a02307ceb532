"""How long tests wait for what must happen: until they hang, not until they are slow.

Machines are shared and busy, so no test says how long something takes.
"""

import time
from collections.abc import Iterator

HANG_SECONDS = 600.0  # pytest's own limit of a test (`timeout` in pyproject.toml) is above it
# Seconds between two looks: each look takes CPU time from what it waits for.
FIRST_PAUSE, LONGEST_PAUSE, GROWTH = 0.05, 0.4, 1.25


def looks(seconds: float = HANG_SECONDS) -> Iterator[None]:
    """Yield now, and again after pauses that grow, until so many seconds are over."""
    deadline, pause = time.monotonic() + seconds, FIRST_PAUSE
    while time.monotonic() < deadline:
        yield
        time.sleep(pause)
        pause = min(pause * GROWTH, LONGEST_PAUSE)
