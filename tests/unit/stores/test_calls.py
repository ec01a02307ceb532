"""Calls and their pace, number by number: growth, cuts, the budget, the worker's end."""

import random
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from functools import partial

import pytest

from s3unzip.errors import ServiceFaultError, ThrottledError
from s3unzip.stores.calls import CUT, AimdLimiter, Calls
from s3unzip.stores.fault_budget import FIRST_DELAY, LONGEST_DELAY, FaultBudget, draw_delay
from s3unzip.stores.ports import PinnedArchive
from s3unzip.zip import ByteRange
from tests.support.memory import ManualClock


def _end(pace: AimdLimiter, error: Exception | None = None, times: int = 1) -> int:
    def call() -> None:
        if error is not None:
            raise error

    for _ in range(times):
        with suppress(ServiceFaultError):
            pace.run(call)
    return pace.limit


SLOW_DOWN = ThrottledError("slow down")


def test_a_pace_begins_with_a_few_and_grows_to_its_maximum() -> None:
    """Each success adds one place at the beginning, and none above the maximum."""
    assert AimdLimiter(3).limit == 3
    pace = AimdLimiter(10)
    assert pace.limit == 4
    assert [_end(pace, times=times) for times in (1, 5, 100)] == [5, 10, 10]


def test_after_a_cut_a_pace_grows_by_one_a_round() -> None:
    """As many successes as there are places add one; a failure that is no refusal adds none."""
    pace = AimdLimiter(100)
    assert _end(pace, times=16) == 20
    assert _end(pace, SLOW_DOWN) == int(20 * CUT) == 14
    assert _end(pace, times=13) == 14
    assert _end(pace, ServiceFaultError("no answer")) == 14
    assert [_end(pace, times=times) for times in (1, 14, 1)] == [15, 15, 16]


def test_a_cut_forgets_the_successes_before_it() -> None:
    """The next round begins anew; one call can always be made."""
    pace = AimdLimiter(100)
    assert _end(pace, times=6) == 10
    assert _end(pace, SLOW_DOWN) == 7
    assert _end(pace, times=6) == 7
    assert _end(pace, SLOW_DOWN) == 4
    assert [_end(pace, times=times) for times in (3, 1)] == [4, 5]
    assert _end(pace, SLOW_DOWN, times=9) == 1


def test_calls_that_began_before_a_cut_say_nothing_new() -> None:
    """A burst of refusals cuts once."""
    pace = AimdLimiter(4)

    def burst(others: int) -> None:
        if others:
            with suppress(ThrottledError):
                pace.run(partial(burst, others - 1))
        raise SLOW_DOWN

    with pytest.raises(ThrottledError):
        pace.run(partial(burst, 3))
    assert pace.limit == 2


class Faults:
    """A call that fails so many times, each of which takes some seconds."""

    def __init__(self, clock: ManualClock, times: int, seconds: float = 0.0) -> None:
        self.clock, self.times, self.seconds = clock, times, seconds
        self.calls = 0

    def __call__(self) -> str:
        self.calls += 1
        self.clock.slept += self.seconds
        if self.calls <= self.times:
            raise ServiceFaultError("a fault")
        return "done"


def test_the_failing_calls_count_in_the_budget() -> None:
    """A store that lets calls time out ends it as soon as one that refuses them."""
    clock = ManualClock()
    call = Faults(clock, 100, seconds=10.0)
    with pytest.raises(ServiceFaultError):
        Calls(clock, 25.0, 4).run("get", call)
    assert call.calls == 3  # the faults come 10, 20 and 30 s after the first call began


@pytest.mark.parametrize(("left", "attempts"), [(0.0, 1), (LONGEST_DELAY, 3)])
def test_a_call_is_not_tried_again_at_the_workers_end(left: float, attempts: int) -> None:
    """There must be time for the wait; the counts are of what was done."""
    clock = ManualClock(left)
    calls, call = Calls(clock, 60.0, 4), Faults(clock, 2)
    with pytest.raises(ServiceFaultError) if attempts == 1 else nullcontext():
        assert calls.run("get", call) == "done"
    requests = calls.requests
    assert (requests.get, requests.retries, call.calls) == (attempts, attempts - 1, attempts)


def test_delays_double_up_to_the_longest() -> None:
    """With full jitter: from nothing to the delay of the attempt."""
    dice = random.Random(1)
    for attempt, longest in ((0, FIRST_DELAY), (3, 8 * FIRST_DELAY), (30, LONGEST_DELAY)):
        delays = [draw_delay(attempt, dice) for _ in range(200)]
        assert 0 <= min(delays) <= max(delays) <= longest
        assert max(delays) > longest * 0.6


def test_a_step_that_has_failed_tries_nothing_again_until_it_is_reopened() -> None:
    """Its other threads need not wait; its outcomes are written afterwards."""
    clock = ManualClock()
    calls = Calls(clock, 60.0, 4)
    calls.end()
    with pytest.raises(ServiceFaultError):
        calls.run("put", Faults(clock, 1))
    calls.reopen()
    assert calls.run("put", Faults(clock, 1)) == "done"
    assert (calls.requests.put, calls.requests.retries) == (3, 1)


def test_one_budget_for_all_calls_of_a_process() -> None:
    """What one call has spent is not there for the next, until the store answers again."""
    clock, told = ManualClock(), list[str]()
    faults = FaultBudget(60.0, told.append)
    dead = Faults(clock, 10_000)
    for _ in range(3):  # rounds of tasks
        for _ in range(20):
            with pytest.raises(ServiceFaultError):
                Calls(clock, 60.0, 4, faults=faults).run("put", dead)
    assert 50.0 < clock.slept <= 60.0
    assert dead.calls < 100
    assert len(told) == 1
    assert told[0].startswith("a fault, retrying for ")
    calls = Calls(clock, 60.0, 4, faults=faults)
    assert calls.run("get", Faults(clock, 3)) == "done"  # another store
    assert calls.run("put", lambda: 1) == 1
    assert calls.run("put", Faults(clock, 3)) == "done"


def test_one_budget_for_each_kind_of_request() -> None:
    """A store that begins uploads and refuses their parts does not begin anew with each of them."""
    clock, faults = ManualClock(), FaultBudget(60.0, lambda _: None)
    for number in range(5):
        calls, dead = Calls(clock, 60.0, 4, faults=faults), Faults(clock, 10_000)
        assert calls.run("create", lambda: "id") == "id"
        with pytest.raises(ServiceFaultError) as caught:
            calls.run("part", dead)
        assert caught.value.gave_up
        assert caught.value.is_down is (number == 0)  # later it had answered another request
    assert clock.slept <= 60.0


def test_calls_that_wait_for_their_place_do_not_begin_when_the_budget_is_spent() -> None:
    """A dead store is not asked by a wave of calls after the other, each until it times out."""
    clock, faults = ManualClock(), FaultBudget(25.0, lambda _: None)
    dead = Faults(clock, 10_000, seconds=10.0)
    for _ in range(20):  # of one task, and the next
        with pytest.raises(ServiceFaultError):
            Calls(clock, 25.0, 4, faults=faults).paced("put", dead)
    assert dead.calls == 3
    clock.slept += 2 * LONGEST_DELAY  # it may have recovered
    assert Calls(clock, 25.0, 4, faults=faults).paced("put", lambda: 1) == 1


def test_a_call_that_always_fails_ends_although_others_succeed() -> None:
    """The budget is of each call, too."""
    clock = ManualClock()
    calls = Calls(clock, 60.0, 4)
    failing = Faults(clock, 10_000)

    def fail_beside_others() -> str:
        calls.run("put", lambda: 1)
        return failing()

    with pytest.raises(ServiceFaultError):
        calls.run("put", fail_beside_others)
    assert clock.slept <= 60.0


def test_only_throttling_is_counted_as_throttled() -> None:
    """Any other fault is a retry alone."""
    clock = ManualClock()
    calls = Calls(clock, 60.0, 4)
    calls.run("put", Faults(clock, 2))
    assert (calls.requests.throttled, calls.requests.retries) == (0, 2)
    answers = iter([SLOW_DOWN])

    def refuse_once() -> None:
        for error in answers:
            raise error

    calls.paced("put", refuse_once)
    assert (calls.requests.throttled, calls.requests.retries) == (1, 3)
    assert calls.pace.limit == int(4 * CUT)


class Broken:
    """An archive whose bodies break off after three bytes, some times."""

    def __init__(self, times: int) -> None:
        self.times = times
        self.wanted: list[ByteRange] = []

    def stream(self, want: ByteRange) -> Iterator[bytes]:
        self.wanted.append(want)
        breaks = len(self.wanted) <= self.times
        yield bytes(range(want.start, want.stop))[: 3 if breaks else None]
        if breaks:
            raise ServiceFaultError("the body broke off")


@pytest.mark.parametrize("times", [0, 1, 2])
def test_a_broken_body_goes_on_where_it_broke(times: int) -> None:
    """No byte comes twice, and the thread waits for no store while its consumer works."""
    archive, faults = Broken(times), FaultBudget(60.0)
    calls = Calls(ManualClock(), 60.0, 4, faults=faults)
    body = b""
    for data in calls.stream(PinnedArchive([archive.stream], [20]), ByteRange(10, 20)):
        assert not faults.waiting
        body += data
    assert body == bytes(range(10, 20))
    assert archive.wanted == [ByteRange(10 + 3 * n, 20) for n in range(times + 1)]
    assert (calls.requests.get, calls.requests.retries) == (times + 1, times)


def test_each_part_takes_a_request_and_an_end_in_memory_none() -> None:
    """A body that breaks is resumed within its part; each request is counted once."""
    parts = [Broken(0), Broken(1), Broken(0)]
    whole = bytes(range(10)) * 3
    archive = PinnedArchive([part.stream for part in parts], [10, 10, 10], whole[-4:])
    calls = Calls(ManualClock(), 60.0, 4)
    assert calls.read(archive, ByteRange(5, 29)) == whole[5:29]
    assert [part.wanted for part in parts] == [
        [ByteRange(5, 10)],
        [ByteRange(0, 10), ByteRange(3, 10)],
        [ByteRange(0, 6)],
    ]
    assert calls.read(archive, ByteRange(27, 30)) == whole[27:]
    assert (calls.requests.get, calls.requests.retries) == (4, 1)


class Dripping:
    """An archive of which some bytes come each ten seconds."""

    def __init__(self, clock: ManualClock, size: int) -> None:
        self._clock = clock
        self._size = size

    def stream(self, want: ByteRange) -> Iterator[bytes]:
        for start in range(want.start, want.stop, self._size):
            self._clock.sleep(10)
            yield bytes(min(self._size, want.stop - start))


def _dripping(clock: ManualClock, size: int) -> PinnedArchive:
    return PinnedArchive([Dripping(clock, size).stream], [10**9])


def test_a_store_that_sends_less_than_the_floor_is_given_up() -> None:
    """Bytes that come too slowly end a read as silence does: when the budget is spent."""
    clock = ManualClock()
    with pytest.raises(ServiceFaultError, match="fewer than 1,024 a second") as fault:
        Calls(clock, 60.0, 4).read(_dripping(clock, 100), ByteRange(0, 10**9))
    assert fault.value.gave_up
    assert 60.0 < clock.slept <= 90.0


def test_a_body_that_comes_too_slowly_is_read_on_without_a_gap() -> None:
    """If the store answers other threads, a read goes on after the bytes that came too slowly."""
    clock = ManualClock()
    faults = FaultBudget(60.0)
    size = 0
    for data in Calls(clock, 60.0, 4, faults=faults).stream(
        _dripping(clock, 100), ByteRange(0, 1000)
    ):
        faults.note_success("source", "get", clock.now())
        size += len(data)
    assert size == 1000


def test_a_store_that_sends_as_much_as_the_floor_is_read_to_the_end() -> None:
    """A slow line is no fault, however long the read takes."""
    clock = ManualClock()
    assert len(Calls(clock, 60.0, 4).read(_dripping(clock, 10_240), ByteRange(0, 10**6))) == 10**6
    assert clock.slept > 900.0
