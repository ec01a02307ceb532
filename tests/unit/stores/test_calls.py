"""Calls and their pace, number by number: growth, cuts, the budget, the worker's end."""

import random
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from threading import Timer
from timeit import timeit

import pytest

from s3unzip.errors import ServiceFaultError, ThrottledError
from s3unzip.model import Pin
from s3unzip.stores.calls import CUT, FIRST_CALLS, AimdLimiter, Calls
from s3unzip.stores.fault_budget import FIRST_DELAY, LONGEST_DELAY, FaultBudget, draw_delay
from s3unzip.stores.ports import Clock, Kind, PinnedArchive, Tail
from s3unzip.zip import ByteRange, Policy, drive, locate_directory
from s3unzip.zip.directory import DirectoryLocation
from tests.support.memory import ManualClock, World
from tests.support.zips import Entry, Shape, build


def _end(pace: AimdLimiter, error: Exception | None = None, times: int = 1) -> int:
    def call() -> None:
        if error is not None:
            raise error

    for _ in range(times):
        with suppress(ServiceFaultError):
            pace.run(call)
    return pace.limit


SLOW_DOWN = ThrottledError("slow down")


@pytest.mark.parametrize(
    ("maximum", "ends", "limits"),
    [
        (3, [(None, 0)], [3]),
        # Each success adds one place at the beginning, and none above the maximum.
        (30, [(None, 0), (None, 1), (None, 5), (None, 100)], [16, 17, 22, 30]),
        # After a cut as many successes as there are places add one; a failure that is no refusal
        # adds none.
        (
            100,
            [
                (None, 4),
                (SLOW_DOWN, 1),
                (None, 13),
                (ServiceFaultError("no answer"), 1),
                (None, 1),
                (None, 14),
                (None, 1),
            ],
            [20, int(20 * CUT), 14, 14, 15, 15, 16],
        ),
        # A cut forgets the successes before it; one call can always be made.
        (
            100,
            [
                (None, 4),
                (SLOW_DOWN, 1),
                (None, 13),
                (SLOW_DOWN, 1),
                (None, 8),
                (None, 1),
                (SLOW_DOWN, 9),
            ],
            [20, 14, 14, 9, 9, 10, 1],
        ),
    ],
    ids=["a low maximum", "the beginning", "rounds", "cuts"],
)
def test_a_pace_follows_the_answers(
    maximum: int, ends: list[tuple[Exception | None, int]], limits: list[int]
) -> None:
    """It begins with a few calls, grows with each success, and is cut by a refusal."""
    pace = AimdLimiter(maximum)
    assert [_end(pace, error, times) for error, times in ends] == limits


def test_the_next_step_begins_at_the_pace_of_the_step_before() -> None:
    """All calls of a process share one limiter; the first step raises it by one."""
    context = World().context
    context.calls().paced("put", lambda: 1)
    assert context.calls().pace.limit == FIRST_CALLS + 1


def test_a_slow_put_is_cut_as_a_refused_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """With more PUTs on a slow link, each would take longer, up to its time limit."""
    monkeypatch.setattr("s3unzip.stores.calls.SLOW_PUT", 0.0)
    calls = World().context.calls()
    calls.paced("put", lambda: 1)
    calls.paced("head", lambda: 1)
    assert calls.pace.limit == int(FIRST_CALLS * CUT)


@pytest.mark.parametrize("kind", ["put", "part"])
def test_a_put_that_is_silent_for_longer_than_the_budget_is_sent_again(
    clock: ManualClock, calls: Calls, kind: Kind
) -> None:
    """The connection may be lost, not the store; a second silence ends the calls."""
    assert calls.run(kind, Faults(clock, 1, seconds=80.0)) == "done"
    silent = Faults(clock, 10_000, seconds=80.0)
    with pytest.raises(ServiceFaultError):
        calls.run(kind, silent)
    assert silent.calls == 2


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


@dataclass
class Faults:
    """A call that fails so many times, each of which takes some seconds."""

    clock: ManualClock
    times: int
    seconds: float = 0.0
    fault: Callable[[str], ServiceFaultError] = ServiceFaultError
    calls: int = 0

    def __call__(self) -> str:
        self.calls += 1
        self.clock.slept += self.seconds
        if self.calls <= self.times:
            raise self.fault("a fault")
        return "done"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def calls(clock: ManualClock) -> Calls:
    return Calls(clock, 60.0, 4)


@pytest.mark.parametrize(
    ("left", "attempts", "end"),
    [(0.0, 1, pytest.raises(ServiceFaultError)), (LONGEST_DELAY, 3, nullcontext())],
)
def test_a_call_is_not_tried_again_at_the_workers_end(
    left: float, attempts: int, end: AbstractContextManager[object]
) -> None:
    """There must be time for the wait; the counts are of what was done."""
    clock = ManualClock(left)
    calls, call = Calls(clock, 60.0, 4), Faults(clock, 2)
    with end:
        assert calls.run("get", call) == "done"
    assert (calls.requests.get, calls.requests.retries + 1, call.calls) == (attempts,) * 3


def test_a_stopped_clock_ends_a_wait() -> None:
    """Also if another clock supplies its time, as for the worker in a thread."""
    clock = Clock(Clock())
    Timer(0.1, clock.stop).start()
    assert timeit(partial(clock.sleep, 30.0), number=1) < 30.0


@pytest.mark.parametrize(
    ("attempt", "longest"), [(0, FIRST_DELAY), (3, 8 * FIRST_DELAY), (30, LONGEST_DELAY)]
)
def test_delays_double_up_to_the_longest(attempt: int, longest: float) -> None:
    """With full jitter: from nothing to the delay of the attempt."""
    dice = random.Random(1)
    delays = [draw_delay(attempt, dice) for _ in range(200)]
    assert 0 <= min(delays) < longest * 0.6 < max(delays) <= longest


@pytest.mark.parametrize(("asked", "waited"), [(7.0, 7.0), (3_600.0, LONGEST_DELAY)])
def test_a_server_that_asks_for_a_wait_gets_it(
    clock: ManualClock, calls: Calls, asked: float, waited: float
) -> None:
    """The first retry waits as long as the server asks, up to the longest delay."""
    fault = ThrottledError("slow down")
    fault.wait_seconds = asked
    calls.run("get", Faults(clock, 1, fault=lambda _: fault))
    assert clock.slept == waited


def test_a_step_that_has_failed_tries_nothing_again_until_it_is_reopened(
    clock: ManualClock, calls: Calls
) -> None:
    """Its other threads need not wait; its outcomes are written afterwards."""
    calls.end(ServiceFaultError("the step has failed"))
    with pytest.raises(ServiceFaultError, match="a fault"):
        calls.run("put", Faults(clock, 1))
    with pytest.raises(ServiceFaultError, match="the step has failed"):
        calls.paced("head", lambda: 1)
    calls.reopen()
    assert calls.paced("put", Faults(clock, 1)) == "done"
    assert (calls.requests.put, calls.requests.retries) == (3, 1)


def test_one_budget_for_all_calls_of_a_process(clock: ManualClock) -> None:
    """What one call has spent is not there for the next, until the store answers again."""
    told = list[str]()
    faults = FaultBudget(60.0, told.append)
    dead = Faults(clock, 10_000)
    for _ in range(3 * 20):  # rounds of tasks
        with pytest.raises(ServiceFaultError):
            Calls(clock, 60.0, 4, faults=faults).run("put", dead)
    assert 50.0 < clock.slept <= 60.0
    assert dead.calls < 100
    assert [message.partition(" for ")[0] for message in told] == ["a fault, retrying"]
    calls = Calls(clock, 60.0, 4, faults=faults)
    assert calls.run("get", Faults(clock, 3)) == "done"  # another store
    assert (calls.run("put", lambda: 1), calls.run("put", Faults(clock, 3))) == (1, "done")


def test_one_budget_for_each_kind_of_request(clock: ManualClock) -> None:
    """A store that begins uploads and refuses their parts does not begin anew with each of them."""
    faults = FaultBudget(60.0, lambda _: None)
    for number in range(5):
        calls = Calls(clock, 60.0, 4, faults=faults)
        assert calls.run("create", lambda: "id") == "id"
        with pytest.raises(ServiceFaultError) as caught:
            calls.run("part", Faults(clock, 10_000))
        # Later the store had answered another request.
        assert (caught.value.gave_up, caught.value.is_down) == (True, number == 0)
    assert clock.slept <= 60.0


def test_calls_that_wait_for_their_place_do_not_begin_when_the_budget_is_spent(
    clock: ManualClock,
) -> None:
    """A dead store is not asked by a wave of calls after the other, each until it times out."""
    faults = FaultBudget(25.0, lambda _: None)
    dead = Faults(clock, 10_000, seconds=10.0)
    for _ in range(20):  # of one task, and the next
        with pytest.raises(ServiceFaultError):
            Calls(clock, 25.0, 4, faults=faults).paced("put", dead)
    assert dead.calls == 3
    clock.slept += 2 * LONGEST_DELAY  # it may have recovered
    assert Calls(clock, 25.0, 4, faults=faults).paced("put", lambda: 1) == 1


@pytest.mark.parametrize(
    ("fault", "fails"),
    [(ServiceFaultError, pytest.raises(ServiceFaultError)), (ThrottledError, nullcontext())],
)
def test_a_call_that_always_fails_ends_although_others_succeed(
    clock: ManualClock,
    calls: Calls,
    fault: type[ServiceFaultError],
    fails: AbstractContextManager[object],
) -> None:
    """The budget is of each call, too; a store that throttles a call for long still works."""
    failing = Faults(clock, 100, fault=fault)

    def fail_beside_others() -> str:
        calls.run("put", lambda: 1)
        return failing()

    with fails:
        calls.run("put", fail_beside_others)
    assert (clock.slept <= 60.0) == (fault is ServiceFaultError)


def test_only_throttling_is_counted_as_throttled(clock: ManualClock, calls: Calls) -> None:
    """Any other fault is a retry alone."""
    calls.run("put", Faults(clock, 2))
    assert (calls.requests.throttled, calls.requests.retries) == (0, 2)
    calls.paced("put", Faults(clock, 1, fault=ThrottledError))
    assert (calls.requests.throttled, calls.requests.retries, calls.pace.limit) == (
        1,
        3,
        int(4 * CUT),
    )


@dataclass
class Broken:
    """An archive whose bodies break off after three bytes, some times."""

    times: int
    wanted: list[ByteRange] = field(default_factory=list)

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
    assert (body, archive.wanted, calls.requests.get, calls.requests.retries) == (
        bytes(range(10, 20)),
        [ByteRange(10 + 3 * n, 20) for n in range(times + 1)],
        times + 1,
        times,
    )


def test_each_part_takes_a_request_and_an_end_in_memory_none(calls: Calls) -> None:
    """A body that breaks is resumed within its part; each request and byte is counted once."""
    parts = [Broken(0), Broken(1), Broken(0)]
    whole = bytes(range(10)) * 3
    archive = PinnedArchive([part.stream for part in parts], [10, 10, 10], whole[-4:])
    assert calls.read(archive, ByteRange(5, 29)) == whole[5:29]
    assert [part.wanted for part in parts] == [
        [ByteRange(5, 10)],
        [ByteRange(0, 10), ByteRange(3, 10)],
        [ByteRange(0, 6)],
    ]
    assert (
        calls.read(archive, ByteRange(27, 30)),
        calls.requests.get,
        calls.requests.retries,
        archive.bytes_read,
    ) == (whole[27:], 4, 1, 21)


@pytest.mark.parametrize("zip64", [False, True])
def test_every_length_of_an_end_gives_the_same_directory(calls: Calls, *, zip64: bool) -> None:
    """No byte in memory is read again; without a request, members are counted."""
    raw = build(
        *(Entry("a"), Entry("b"), Entry("c")),
        shape=Shape(zip64=zip64, prefix=b"stub", comment=b"a comment"),
    )

    def locate(length: int) -> DirectoryLocation:
        def read(want: ByteRange) -> Iterator[bytes]:
            assert want.stop <= len(raw) - length
            yield raw[want.start : want.stop]

        archive = PinnedArchive([read], [len(raw)], raw[len(raw) - length :])
        return drive(locate_directory(len(raw), Policy()), partial(calls.read, archive))

    whole = locate(len(raw))
    assert (whole.prefix, whole.entries) == (4, 3)
    assert {locate(length) for length in range(len(raw))} == {whole}
    assert [Tail(end, Pin(len(raw))).count_members(Policy()) for end in (raw, raw[1:])] == [3, None]


def _dripping(clock: ManualClock, size: int) -> PinnedArchive:
    """An archive of which some bytes come each ten seconds."""

    def stream(want: ByteRange) -> Iterator[bytes]:
        for start in range(want.start, want.stop, size):
            clock.sleep(10)
            yield bytes(min(size, want.stop - start))

    return PinnedArchive([stream], [10**9])


def test_a_store_that_sends_less_than_the_floor_is_given_up(
    clock: ManualClock, calls: Calls
) -> None:
    """Bytes that come too slowly end a read as silence does: when the budget is spent."""
    with pytest.raises(ServiceFaultError, match="fewer than 1,024 per second") as fault:
        calls.read(_dripping(clock, 100), ByteRange(0, 10**9))
    assert fault.value.gave_up
    assert 60.0 < clock.slept <= 90.0


def test_a_body_that_comes_too_slowly_is_read_on_without_a_gap(clock: ManualClock) -> None:
    """If the store answers other threads, a read goes on after the bytes that came too slowly."""
    faults = FaultBudget(60.0)
    calls = Calls(clock, 60.0, 4, faults=faults)
    size = 0
    for data in calls.stream(_dripping(clock, 100), ByteRange(0, 1000)):
        faults.note_success("source", "get", clock.now())
        size += len(data)
    assert size == 1000


def test_a_store_that_sends_as_much_as_the_floor_is_read_to_the_end(
    clock: ManualClock, calls: Calls
) -> None:
    """A slow line is no fault, however long the read takes."""
    assert len(calls.read(_dripping(clock, 10_240), ByteRange(0, 10**6))) == 10**6
    assert clock.slept > 900.0
