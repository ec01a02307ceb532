"""Orders of the threads of `PutPool`, `Calls` and `PartWriter`, explored by seeds.

The threads are fibers of the simulation's scheduler. They take turns at each lock, condition,
queue, event and call of the store. A schedule that never ends, because threads wait for each
other, leaves the main thread unfinished.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from s3unzip.errors import ServiceFaultError, ThrottledError
from s3unzip.extraction.batch import PutPool
from s3unzip.extraction.large import PartWriter
from s3unzip.model import Part
from s3unzip.stores import calls as calls_module
from s3unzip.stores.calls import Calls
from s3unzip.stores.ports import Buffer, Upload
from tests.simulation.scheduler import Process, Scheduler
from tests.simulation.substitution import substituted
from tests.simulation.threads import ClockOf, Thread

SCHEDULES = 300  # of each test
MAX_BYTES = 100


def explore(work: Callable[[Scheduler], None], schedules: int = SCHEDULES) -> None:
    """Run `work` in so many orders of its threads.

    Raises:
        AssertionError: in one of them it never ends, or asserts; the message has the seed.
    """
    for seed in range(schedules):
        scheduler = Scheduler(random.Random(seed))
        scheduler.preemptive = True
        ended: list[bool] = []

        def main(scheduler: Scheduler = scheduler, ended: list[bool] = ended) -> None:
            work(scheduler)
            ended.append(True)

        with substituted(scheduler):
            scheduler.spawn(Process("main"), main)
            try:
                scheduler.run()
                assert ended, f"seed {seed}: the threads wait for each other"
            except AssertionError as error:
                raise AssertionError(f"seed {seed}: {error}") from error
            finally:
                scheduler.close()


@pytest.mark.parametrize("failing", [False, True], ids=["all are put", "one fails"])
def test_a_pool_puts_each_body_once_within_its_bounds(*, failing: bool) -> None:
    """Each body is put once, at most so many bytes wait, and the first error reaches the caller."""

    def work(scheduler: Scheduler) -> None:
        rng = scheduler.rng
        done: list[int] = []
        wire = [0, 0]  # bytes now, and whether the pool has ended

        def put(item: int, body: Buffer) -> None:
            assert not wire[1], "a PUT after the pool has ended"
            wire[0] += len(body)
            assert wire[0] <= max(MAX_BYTES, len(body)), "more bytes than allowed"
            scheduler.pause()
            wire[0] -= len(body)
            if failing and item == 7:
                raise ServiceFaultError("item 7")
            done.append(item)

        pool: PutPool[int] = PutPool(put, rng.randint(1, 3), MAX_BYTES)
        try:
            for item in range(12):
                pool.submit(item, bytes(rng.choice((1, 30, 60, 120))))
            pool.close()
        except ServiceFaultError:
            assert failing
            pool.abandon()
        else:
            assert not failing
            assert sorted(done) == list(range(12))
        wire[1] = 1
        assert len(set(done)) == len(done)

    explore(work)


def _call_in_threads(scheduler: Scheduler) -> None:
    """Let four threads make calls that are throttled now and then, and check the limiter."""
    rng = scheduler.rng
    calls = Calls(ClockOf(scheduler), 1_000.0, 3)
    active = [0]
    answered: list[int] = []

    def request(number: int) -> None:
        active[0] += 1
        assert active[0] <= 3, "more calls at once than allowed"
        scheduler.pause()
        active[0] -= 1
        if rng.random() < 0.3:
            raise ThrottledError("slow down")
        answered.append(number)

    def thread(number: int) -> None:
        for _ in range(3):
            calls.paced("put", lambda: request(number))

    threads = [Thread(scheduler, thread, args=(number,)) for number in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    counted = calls.requests
    assert len(answered) == 12
    assert counted.put == 12 + counted.retries
    assert counted.throttled == counted.retries


def test_paced_calls_end_within_their_limit() -> None:
    """All calls are answered, never too many at once, and the counts are exact."""
    explore(_call_in_threads)


def test_the_exploration_finds_a_lost_notification(monkeypatch: pytest.MonkeyPatch) -> None:
    """A limiter that does not wake those who wait is found: the exploration is no formality."""
    real = calls_module.AimdLimiter.leave

    def leave(self: Any, entered: int, **how: bool) -> None:
        waiting, self._waiting = self._waiting, 0
        real(self, entered, **how)
        self._waiting = waiting

    monkeypatch.setattr(calls_module.AimdLimiter, "leave", leave)
    with pytest.raises(AssertionError, match=r"seed .*wait for each other"):
        explore(_call_in_threads)


class SlowParts:
    """Takes parts while other threads run, and notices a buffer that changes on the wire."""

    def __init__(self, scheduler: Scheduler, at_once: int, *, failing: bool) -> None:
        self._scheduler = scheduler
        self._at_once = at_once
        self._failing = failing
        self.active = 0
        self.stored: dict[int, bytes] = {}

    def upload_part(
        self, upload: Upload, number: int, offset: int, body: Buffer, crc32: int
    ) -> Part:
        """Take a part."""
        sent = bytes(body)
        self.active += 1
        assert self.active <= self._at_once, "more parts at once than allowed"
        for _ in range(3):
            self._scheduler.pause()
        self.active -= 1
        assert bytes(body) == sent, "the buffer changed while it was sent"
        if self._failing and number == 3:
            raise ServiceFaultError("part 3")
        self.stored[number] = sent
        return Part(number, f"etag-{number}", len(sent), crc32)


@pytest.mark.parametrize("failing", [False, True], ids=["all are taken", "one fails"])
def test_a_writer_sends_each_part_as_it_was_filled(*, failing: bool) -> None:
    """Parts come out whole and in order, and nothing is on the wire after the end."""

    def work(scheduler: Scheduler) -> None:
        rng = scheduler.rng
        at_once = rng.randint(1, 3)
        store: Any = SlowParts(scheduler, at_once, failing=failing)
        calls = Calls(ClockOf(scheduler), 0.0, 4)
        writer = PartWriter(
            store, Upload("key", "id"), calls, sizes=[10, 7, 10, 12, 10], at_once=at_once
        )
        body = rng.randbytes(64)
        try:
            for at in range(0, len(body), 9):
                writer.write(body[at : at + 9])
            parts = writer.close()
        except ServiceFaultError:
            assert failing
            writer.abandon()
        else:
            assert not failing
            assert [part.number for part in parts] == list(range(1, len(parts) + 1))
            assert b"".join(store.stored[part.number] for part in parts) == body
        assert store.active == 0, "a part is on the wire after the end"

    explore(work)
