"""The harness: every figure of docs/reliability.md that needs no AWS.

``python -m tests.faults`` runs the long form, about a quarter of an hour on
two cores; ``--only kills bombs`` some of it. A short form runs with the test suite.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator

from tests.faults import bombs, experiments, killing
from tests.faults.figures import Figure, report
from tests.faults.proxy import FaultProxy
from tests.faults.versity import Versity
from tests.faults.world import World


def choices(world: World, counts: argparse.Namespace) -> dict[str, Callable[[], Iterator[Figure]]]:
    """Return what can be measured, by name."""
    return {
        "bombs": lambda: bombs.measure_bombs(world),
        "denials": lambda: experiments.measure_denials(world, (500, counts.members)),
        "reruns": lambda: experiments.measure_reruns(world, 3_000),
        "twins": lambda: experiments.measure_twins(world, counts.twins),
        "once": lambda: experiments.measure_once(world),
        "rates": lambda: experiments.measure_rates(world, (0.01, 0.05, 0.2), counts.small),
        "overwrites": lambda: experiments.measure_overwrites(world, counts.overwrites, counts.seed),
        "kills": lambda: killing.measure_kills(world, counts.kills),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--kills", type=int, default=1_000, help="of workers, over all runs")
    parser.add_argument("--overwrites", type=int, default=200, help="of the source, one a run")
    parser.add_argument("--twins", type=int, default=200, help="tasks done twice at once")
    parser.add_argument("--members", type=int, default=10_000, help="of the larger denied archive")
    parser.add_argument("--small", type=int, default=1_500, help="members of the throttled archive")
    parser.add_argument("--seed", type=int, default=7, help="of the moments of overwrites")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="of the experiments")
    counts = parser.parse_args()
    started = time.monotonic()
    with Versity() as server, FaultProxy(server.port) as proxy:
        known = choices(World(server, proxy), counts)
        unknown = set(counts.only or ()) - known.keys()
        if unknown:
            parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(known)}")
        for name in counts.only or known:
            report(known[name]())
    report([Figure("seconds", time.monotonic() - started, "s")])


if __name__ == "__main__":
    main()
