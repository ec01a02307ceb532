"""Target `runs`: whole runs of the simulation, judged by the model.

A case is a schedule: archives, faults and the order of calls by the generator's own bits.
"""

from random import Random

from tests.simulation.schedule import run_seed


def run_runs(data: bytes, chance: Random) -> bool:
    """Run one schedule; return whether faults were injected."""
    return bool(run_seed(chance.getrandbits(48)).injected)
