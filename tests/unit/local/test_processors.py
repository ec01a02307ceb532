"""How a worker's threads are scheduled: each test in a process of its own."""

import multiprocessing
import os
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import pytest

from s3unzip.local.process_setup import yield_to_others

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has these policies")


def _schedule_threads() -> tuple[int, int]:
    yield_to_others()
    with ThreadPoolExecutor(1) as pool:
        return os.sched_getscheduler(0), pool.submit(os.sched_getscheduler, 0).result()


def schedule_the_idle() -> tuple[int, int]:
    """Return the same of a process that was begun with ``chrt --idle``."""
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    return _schedule_threads()


@pytest.mark.parametrize(
    ("question", "policy"), [(_schedule_threads, "SCHED_BATCH"), (schedule_the_idle, "SCHED_IDLE")]
)
def test_threads_preempt_no_other_process(
    question: Callable[[], tuple[int, int]], policy: str
) -> None:
    """A process and its threads preempt no other; a policy that somebody chose stays."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        assert pool.submit(question).result() == (getattr(os, policy), getattr(os, policy))
