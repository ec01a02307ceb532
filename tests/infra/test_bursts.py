"""Runs with far fewer workers than tasks, walked through the definition."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from msgspec import convert
from msgspec.structs import asdict

from s3unzip import rates
from s3unzip.runs.rounds import Round, next_round
from tests.infra.walker import FailedExecutionError, NamedError, Walker

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.infra.templates import Synthesized
    from tests.infra.walker import Payload

THROTTLED = NamedError("Lambda.TooManyRequestsException")
FAILED = NamedError("ServiceFaultError")
KEYS = {name: f"{name}.jsonl" for name in ("scan", "rescan", "whole", "slices", "redo")}


@dataclass(slots=True)
class Run:
    """A run's records, and an account where an invocation finds a worker now and then."""

    tasks: int  # of whole members, and one slice for each scan
    scans: int = 0
    inline: bool = False  # whether the input has the lists
    overlap: bool = False  # whether slices wait beside the scans
    linked: bool = False
    chance: float = 1.0  # of an invocation to find a worker
    broken: set[int] = field(default_factory=set)  # tasks and scans that fail
    warmed: int = 0  # calls that only started a worker
    done: set[int] = field(default_factory=set)
    scanned: set[int] = field(default_factory=set)
    lines: dict[str, list[int]] = field(default_factory=dict)
    dice: random.Random = field(default_factory=lambda: random.Random(1))

    def walker(self, made: Synthesized) -> Walker:
        """Return a walker whose functions are this run's."""
        self.lines |= {KEYS[name]: numbers for name, numbers in self._lists.items()}
        functions: dict[str, Callable[[Payload], Payload]] = {
            "FunctionsExtract.Arn": self._extract,
            "FunctionsLink.Arn": self._link,
            "s3:headObject": self._look,
            "FunctionsReport.Arn": self._report,
            "FunctionsPlanner.Arn": lambda _: {**self.input, "refused": False},
        }
        return Walker(made.definition(), functions, self.lines)

    @property
    def input(self) -> Payload:
        """What the plan function hands over."""
        return {
            "run": {},
            "work": {**KEYS, "bucket": "work", "linked": "link.json"},
            "inline": self._lists if self.inline else {},
            "split_members": self.scans,
            "overlap": self.overlap,
        }

    @property
    def _lists(self) -> dict[str, list[int]]:
        return {
            "whole": list(range(self.tasks)),
            "scan": list(range(-self.scans, 0)),
            "slices": list(range(self.tasks, self.tasks + self.scans)),
        }

    def _extract(self, event: Payload) -> Payload:
        if event.get("warm"):
            self.warmed += 1
            raise THROTTLED  # which Lambda's queue keeps to itself
        if "scan" in event:
            return self._work(event["scan"], self.scanned)
        return self._work(event["task"], self.done)

    def _work(self, number: int, done: set[int]) -> Payload:
        if self.dice.random() > self.chance:
            raise THROTTLED
        if number in self.broken:
            raise FAILED
        done.add(number)
        return {}

    def _link(self, event: Payload) -> Payload:
        left = [] if event.get("anyway") else sorted(set(range(-self.scans, 0)) - self.scanned)
        self.lines["rescan.jsonl"] = left
        self.linked = not left
        return _round(left, event)

    def _look(self, parameters: Payload) -> Payload:
        assert parameters == {"Bucket": "work", "Key": "link.json"}
        if not self.linked:
            raise NamedError("S3.NoSuchKeyException")
        return {}

    def _report(self, event: Payload) -> Payload:
        if event.get("warm"):
            return {}
        left = sorted(set(range(self.tasks + self.scans)) - self.done)
        self.lines["redo.jsonl"] = left
        return {"verdict": "FAILED" if left else "COMPLETED", **_round(left, event)}


def _round(left: list[int], event: Payload) -> Payload:
    earlier = convert(event["earlier"], Round) if "earlier" in event else None
    return asdict(next_round(len(left), earlier))


@pytest.mark.parametrize("inline", [True, False])
@pytest.mark.parametrize("chance", [1.0, 0.3, 0.02])
def test_no_task_is_given_up_for_want_of_a_worker(
    dev: Synthesized, chance: float, *, inline: bool
) -> None:
    """However few workers there are, the run ends when all its tasks are done."""
    run = Run(tasks=60, scans=40, chance=chance, inline=inline)
    walker = run.walker(dev)
    walker.run(run.input)
    assert walker.visited[-1] == "Done"
    assert (len(run.done), len(run.scanned)) == (100, 40)
    assert (f"Extract{' inline' * inline}" in walker.visited) is True
    assert ("Redo" in walker.visited) == ("Rescan" in walker.visited) == (chance < 1.0)
    assert (walker.waited > 0) == (chance < 1.0)


@pytest.mark.parametrize("inline", [True, False])
def test_a_redrive_repeats_what_failed(dev: Synthesized, *, inline: bool) -> None:
    """A task that fails twice fails the run in a Map; after the mend a redrive completes it."""
    run = Run(tasks=9, broken={4}, inline=inline)
    walker = run.walker(dev)
    with pytest.raises(FailedExecutionError) as caught:
        walker.run(run.input)
    assert caught.value.state == "Redo"
    assert len(run.done) == 8
    run.broken.clear()
    walker.run(caught.value.data, caught.value.state)
    assert walker.visited[-1] == "Done"
    assert len(run.done) == 9


def test_a_scan_that_fails_is_not_waited_for(dev: Synthesized) -> None:
    """Its member is streamed, and the run continues with the other scans."""
    run = Run(tasks=3, scans=5, broken={-1})
    walker = run.walker(dev)
    walker.run(run.input)
    assert walker.visited.count("Rescan") == 1
    assert "Link anyway" in walker.visited
    assert len(run.done) == 8


@pytest.mark.parametrize("chance", [1.0, 0.3])
def test_slices_that_wait_need_no_second_round(dev: Synthesized, chance: float) -> None:
    """If all scans find a worker, slices follow at once; else they are extracted as without it."""
    run = Run(tasks=3, scans=40, chance=chance, overlap=True)
    walker = run.walker(dev)
    walker.run(run.input)
    assert walker.visited[-1] == "Done"
    assert (len(run.done), len(run.scanned)) == (43, 40)
    assert ("Link" in walker.visited) == ("Extract slices" in walker.visited) == (chance < 1.0)
    if chance == 1.0:
        assert len(walker.visited) == rates.TRANSITIONS_OVERLAP


def test_a_scan_beside_slices_that_fails(dev: Synthesized) -> None:
    """The link step does not wait for ever; the other scans are used as without an overlap."""
    run = Run(tasks=3, scans=5, broken={-1}, overlap=True)
    walker = run.walker(dev)
    walker.run(run.input)
    assert {"Scan and slices", "Link", "Rescan", "Link anyway"} <= set(walker.visited)
    assert len(run.done) == 8


def test_the_estimate_counts_the_states(dev: Synthesized) -> None:
    """What an estimate prices is what an execution enters; tasks of inline Maps come on top."""
    for scans, states in ((0, rates.TRANSITIONS), (2, rates.TRANSITIONS_SPLIT)):
        run = Run(tasks=3, scans=scans, inline=True)
        walker = run.walker(dev)
        walker.run(run.input)
        assert len(walker.visited) == states


def test_workers_start_beside_the_planner(dev: Synthesized) -> None:
    """As many as the input says, which may all fail; the planner's answer goes on."""
    run = Run(tasks=3, inline=True)
    walker = run.walker(dev)
    walker.run({"planned": False, "request": {}, "warm": [0, 1, 2]})
    assert (run.warmed, len(run.done), walker.visited[-1]) == (3, 3, "Done")
    assert len(walker.visited) == rates.TRANSITIONS + 5


def test_an_execution_of_an_older_version_starts_no_workers(dev: Synthesized) -> None:
    """Its input does not say how many."""
    run = Run(tasks=3, inline=True)
    walker = run.walker(dev)
    walker.run({"planned": False, "request": {}})
    assert (run.warmed, len(run.done), walker.visited[-1]) == (0, 3, "Done")
