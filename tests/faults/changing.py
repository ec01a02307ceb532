"""The archive overwritten or deleted while it is extracted: never a mix, and soon a verdict."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from s3unzip.model import Verdict
from tests.faults.archives import make_archive
from tests.faults.figures import Figure, spread
from tests.faults.rules import Act, Record, Rule
from tests.faults.stores import SOURCE
from tests.faults.world import KEY, expected_listing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.faults.world import Listing, World


@dataclass(slots=True)
class _Tally:
    mixed: int = 0
    wrong: int = 0
    changed: int = 0
    completed: int = 0
    left: int = 0
    seconds: list[float] = field(default_factory=list)


def measure_overwrites(world: World, times: int, seed: int = 7) -> Iterator[Figure]:
    """Yield what `times` overwrites at random moments came to; each tenth is a deletion."""
    first, second = make_archive(small=40, seed=1), make_archive(small=40, seed=2)
    want = expected_listing(first)
    world.clear()
    world.put_archive(first)
    world.run()
    requests = len(world.proxy.take_records())
    dice = random.Random(seed)
    tally = _Tally()
    for number in range(times):
        world.clear()
        world.put_archive(first)
        instead = None if number % 10 == 9 else second
        # The first request is the planner's: what comes before it is just another archive.
        _change_once(world, want, instead, dice.randrange(1, requests), tally)
    yield Figure("overwrites", times, "runs")
    yield Figure("overwrites.deletes_among", times // 10, "runs")
    yield Figure("overwrites.mixed", tally.mixed, "runs")
    yield Figure("overwrites.wrong_verdicts", tally.wrong, "runs")
    yield Figure("overwrites.source_changed", tally.changed, "runs")
    yield Figure("overwrites.completed_before", tally.completed, "runs")
    yield Figure("overwrites.uploads_left", tally.left, "uploads")
    yield from spread("overwrites.seconds_to_verdict", tally.seconds, "s")


def _change_once(
    world: World, want: Listing, instead: bytes | None, moment: int, tally: _Tally
) -> None:
    """Run once; at the request number `moment` put `instead`, or delete where it is None."""
    changed_at: list[float] = []

    def change(_: Record) -> None:
        if instead is None:
            world.client.delete_object(Bucket=SOURCE, Key=KEY)
        else:
            world.put_archive(instead)
        changed_at.append(time.monotonic())

    world.proxy.set_rules(Rule(Act.HOLD, after=moment, times=1), on_hold=change)
    verdict = world.run_to_verdict()
    ended = time.monotonic()
    found = world.listing()
    tally.left += world.uploads()
    tally.mixed += any(want.get(key) != entry for key, entry in found.items())
    if verdict is Verdict.COMPLETED:
        tally.completed += 1
        tally.wrong += found != want
    elif verdict is Verdict.SOURCE_CHANGED and changed_at:
        tally.changed += 1
        tally.seconds.append(ended - changed_at[0])
    else:
        tally.wrong += 1
