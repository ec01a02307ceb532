"""How threads are placed on the machine's processors: each test in a process of its own."""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

import pytest

from s3unzip.local.processors import available_processors, keep_to, yield_to_others

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux places threads as it is told"
)


T = TypeVar("T")


class Places(NamedTuple):
    """Where threads may run."""

    earlier: list[int]  # one that ran before
    later: list[int]  # one that was started after
    free: list[int]  # the same, let free again
    everywhere: list[int]


def ask_process(question: Callable[[], T]) -> T:
    """Return the answer to a question that is put to another process."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(question).result()


@contextmanager
def waiting_thread() -> Iterator[int]:
    """A thread that does nothing; gives its id."""
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    assert thread.native_id is not None
    yield thread.native_id
    over.set()
    thread.join()


def place_threads() -> Places:
    """Return where two threads may run: kept to the last processor, and let free again."""
    everywhere = available_processors()
    with waiting_thread() as earlier:
        keep_to(everywhere[-1:])
        with waiting_thread() as later:
            kept_earlier, kept_later = map(_place_of, (earlier, later))
            keep_to(everywhere)
            return Places(kept_earlier, kept_later, _place_of(later), everywhere)


def _place_of(thread: int) -> list[int]:
    return sorted(os.sched_getaffinity(thread))


def keep_to_none_there_is() -> bool:
    """Ask for a processor that no machine has; say whether all is as before."""
    before = available_processors()
    keep_to([1_000_000])
    return available_processors() == before


def schedule_threads() -> tuple[int, int]:
    """Return the policies of this process, and of a thread that it starts."""
    yield_to_others()
    with waiting_thread() as thread:
        return os.sched_getscheduler(0), os.sched_getscheduler(thread)


def schedule_the_idle() -> int:
    """Return the policy of a process that was begun with ``chrt --idle``."""
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    yield_to_others()
    return os.sched_getscheduler(0)


def test_threads_keep_to_a_processor() -> None:
    """Those that run and those to come; and all are let free again."""
    places = ask_process(place_threads)
    assert places.earlier == places.later == places.everywhere[-1:]
    assert places.free == places.everywhere


def test_a_processor_that_is_not_there() -> None:
    """It may have been taken from a container meanwhile: threads stay where they were."""
    assert ask_process(keep_to_none_there_is)


def test_threads_yield() -> None:
    """A process and its threads use SCHED_BATCH, so they preempt no other thread."""
    assert ask_process(schedule_threads) == (os.SCHED_BATCH, os.SCHED_BATCH)


def test_a_policy_that_somebody_chose_stays() -> None:
    """``chrt --idle s3unzip run`` is meant."""
    assert ask_process(schedule_the_idle) == os.SCHED_IDLE
