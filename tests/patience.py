"""How long tests wait for what must happen: until they hang, not until they are slow.

Machines are shared and busy, so no test says how long something takes.
"""

HANG_SECONDS = 600.0  # pytest's own limit of a test (`timeout` in pyproject.toml) is above it
