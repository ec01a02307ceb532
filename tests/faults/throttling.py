"""Requests refused, reset and cut short at a rate: what gets lost, and what it costs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from s3unzip.model import Verdict
from tests.faults.archives import make_archive
from tests.faults.figures import Figure
from tests.faults.rules import Act, Rule
from tests.faults.world import expected_listing

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from tests.faults.world import Listing, World

FAULTS = {
    "503": Rule(Act.ANSWER, status=503, code="SlowDown"),
    "500": Rule(Act.ANSWER, status=500, code="InternalError"),
    "reset": Rule(Act.RESET),
    "truncated": Rule(Act.TRUNCATE),
    "lost_answer": Rule(Act.LOSE),
}

NOTHING = Rule(Act.RESET, times=0)


def measure_rates(world: World, rates: tuple[float, ...], small: int) -> Iterator[Figure]:
    """Yield lost members, slow-down and extra requests by kind of fault and rate."""
    archive = make_archive(small=small)
    want = expected_listing(archive)
    yield from measure_rule(world, archive, want, NOTHING, "warm", None)
    base = yield from measure_rule(world, archive, want, NOTHING, "none", None)
    for name, rule in FAULTS.items():
        for rate in rates:
            label = f"{name}.{rate * 100:g}%"
            yield from measure_rule(world, archive, want, _at(rule, rate), label, base)


def measure_once(world: World) -> Iterator[Figure]:
    """Yield what single, nasty faults do: lost and ambiguous Completes, flipped bytes, stalls."""
    archive = make_archive(small=100)
    want = expected_listing(archive)
    cases = {
        "lost_complete": Rule(Act.LOSE, kinds=("complete",), times=3),
        "error_in_200": Rule(Act.ERROR_BODY, kinds=("complete",), times=3, code="InternalError"),
        "flipped_put": Rule(Act.FLIP, kinds=("put",), within="/members/", chance=0.1),
        "flipped_part": Rule(Act.FLIP, kinds=("part",), times=2),
        "stalled": Rule(Act.STALL, kinds=("get", "put", "part"), chance=0.01, seconds=8),
        "kms_throttled": Rule(
            Act.ANSWER, kinds=("put",), chance=0.1, status=400, code="KMS.ThrottlingException"
        ),
    }
    for name, rule in cases.items():
        yield from measure_rule(world, archive, want, rule, name, None)


def _at(rule: Rule, rate: float) -> Rule:
    return Rule(rule.act, chance=rate, status=rule.status, code=rule.code)


def measure_rule(
    world: World,
    archive: bytes,
    want: Listing,
    rule: Rule,
    label: str,
    base: tuple[float, int] | None,
) -> Generator[Figure, None, tuple[float, int]]:
    """Yield the figures of one run; return its seconds and requests."""
    world.clear()
    world.put_archive(archive)
    world.proxy.set_rules(rule)
    started = time.monotonic()
    report = world.run()
    seconds = time.monotonic() - started
    records = world.proxy.take_records()
    hit = sum(1 for record in records if record.fault)
    found = world.listing()
    lost = sum(1 for key, entry in want.items() if found.get(key) != entry)
    whole = report.verdict is Verdict.COMPLETED and found == want
    if label != "warm":
        yield Figure(f"{label}.lost_members", lost, "members")
        yield Figure(f"{label}.whole", float(whole), "of 1")
        yield Figure(f"{label}.uploads_left", world.uploads(), "uploads")
        yield Figure(f"{label}.faults", hit, "requests")
        yield Figure(f"{label}.seconds", seconds, "s")
    if base is not None:
        yield Figure(f"{label}.slow_down", seconds / base[0], "x")
        yield Figure(f"{label}.requests", len(records) / base[1], "x")
    return seconds, len(records)
