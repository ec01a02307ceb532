"""Nonsense is refused by name; run ids tell versions and options apart; threads may decode."""

import re
import subprocess
import sys
from textwrap import dedent
from typing import Any

import pytest
from hypothesis import given, strategies as st
from msgspec.structs import replace

from s3unzip import model
from s3unzip.errors import UsageError
from s3unzip.model import Location, Options, Pin, Request, decode
from s3unzip.run_ids import execution_name, run_id, run_of_execution


def test_nonsense_is_refused_by_name() -> None:
    """A damaged line says what it is not, and never a traceback."""
    for kind in (model.Report, Options):
        with pytest.raises(UsageError, match=f"not a {kind.__name__}"):
            decode(b'{"broken', kind)
    with pytest.raises(UsageError, match="not lines of Outcome"):
        model.decode_lines(b'{"broken\n', model.Outcome)


def _request(key: str = "in/My archive (1).ZIP", **options: Any) -> Request:
    return Request(Location("s3", "b", key), Location("s3", "o", "x/"), Options(**options))


PUT = 1_795_466_132.0  # 2026-11-23 20:35:32


@given(st.text(min_size=1), st.integers(0, 20))
def test_a_run_is_found_by_the_name_of_its_execution(key: str, number: int) -> None:
    """Step Functions takes 1-80 characters of [A-Za-z0-9_-]; those that resume have a suffix."""
    run = run_id(_request(key), Pin(1, '"e"'), PUT)
    for one in (run, run_id(replace(_request(key), again=run), Pin(2, '"f"'), PUT + 60)):
        name = execution_name(one)
        assert 1 <= len(f"{name}-r100") <= 80
        assert name.replace("-", "").isalnum()
        assert name.isascii()
        assert run_of_execution(name) == run_of_execution(f"{name}-r{number}") == one


def test_a_run_id_tells_versions_and_options_apart() -> None:
    """Another version or another option is another run; the time of the event is not."""
    one = run_id(_request(), Pin(1, '"e"'), PUT)
    assert one.startswith("2026-11-23/203532-My-archive-1-")
    assert one == run_id(replace(_request(), event_time=1.0), Pin(1, '"e"'), PUT)
    assert re.fullmatch(r"[0-9a-f]{16}", one.removeprefix("2026-11-23/203532-My-archive-1-"))
    assert one != run_id(_request(), Pin(1, '"f"'), PUT)
    assert one != run_id(_request(lenient=True), Pin(1, '"e"'), PUT)
    assert one < run_id(_request("in/A.zip"), Pin(1, '"e"'), PUT + 1)


def test_archives_whose_hashes_agree_in_32_bits_are_two_runs() -> None:
    """Devices upload archives of one name by the thousand in a second: each has its own run."""
    numbers = ("075098", "077235")  # the first of 400,000 whose hashes begin alike
    first, second = (
        run_id(_request(f"customers/{number}/data.zip"), Pin(1, '"e"'), PUT) for number in numbers
    )
    start = "2026-11-23/203532-data-5ca2dc7b"
    assert first.startswith(start)
    assert second.startswith(start)
    assert first != second


def test_threads_may_decode_a_type_at_the_same_time() -> None:
    """The first thread makes the type's reader ready; the others wait for it, and none crashes."""
    program = """
        import random, sys, threading, time
        from s3unzip.model import Report, decode
        from s3unzip.errors import UsageError

        TEXT = '{"timing": {}, "requests": {}, "source": {}, "destination": {}, "run": {"id": 1}}'

        def switch(*_):  # at each line, so that threads meet in the middle of it
            time.sleep(0)
            return switch

        def read():
            ready.wait()
            time.sleep(random.random() / 20)
            for _ in range(3):
                try:
                    decode(TEXT, Report)
                except UsageError:
                    refused.append(1)

        sys.setswitchinterval(1e-6)
        ready, refused = threading.Barrier(8), []
        threading.settrace(switch)
        threads = [threading.Thread(target=read) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print(len(refused))
        """
    for _ in range(3):
        done = subprocess.run(
            [sys.executable, "-c", dedent(program)], capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout) == (0, "24\n"), done.stderr
