"""Values: nonsense is refused by name, all go through JSON, run ids tell versions apart."""

import pydoc
import re
import subprocess
import sys
from enum import StrEnum
from textwrap import dedent
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given, settings, strategies as st
from msgspec import UNSET, Struct
from msgspec.structs import replace

import s3unzip
from s3unzip import model
from s3unzip.errors import UsageError
from s3unzip.model import (
    AfterSuccess,
    Location,
    Options,
    Pin,
    Request,
    SourceAction,
    decode,
    encode,
)
from s3unzip.options import read_options
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


VALUES = [
    kind
    for kind in vars(model).values()
    if isinstance(kind, type) and issubclass(kind, Struct) and kind is not Struct
]
SIMPLE: dict[Any, st.SearchStrategy[Any]] = {
    type(None): st.none(),
    int: st.integers(0, 2**62),
    float: st.floats(allow_nan=False, allow_infinity=False),
    str: st.text(max_size=20),
    bytes: st.binary(max_size=20),
    bool: st.booleans(),
    Any: st.none() | st.text(max_size=5),  # of JSON
}

PARTS = st.lists(st.builds(model.Pin, SIMPLE[int], st.none(), SIMPLE[str]), max_size=2).map(tuple)
SIMPLE[model.Pin] = st.builds(
    model.Pin, SIMPLE[int], *[st.none() | SIMPLE[str]] * 2, parts=st.just(UNSET) | PARTS
)

SIMPLE[AfterSuccess] = st.one_of(  # what fits the action
    st.just(AfterSuccess(SourceAction.DELETE)),
    st.builds(
        AfterSuccess,
        st.just(SourceAction.TAG),
        tags=st.dictionaries(SIMPLE[str], SIMPLE[str], min_size=1, max_size=2),
    ),
)
CHECKED = {  # options that are checked when they are made
    "key_template": st.sampled_from(["{member}", "x/{name}"]),
    "encoding": st.sampled_from([None, "cp437"]),
}


def _values(hint: Any) -> st.SearchStrategy[Any]:
    if hint in SIMPLE:
        return SIMPLE[hint]
    if get_origin(hint) is Literal:
        return st.sampled_from(get_args(hint))
    return _composed(hint)


def _composed(hint: Any) -> st.SearchStrategy[Any]:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (UnionType, Union):
        return st.one_of([_values(one) for one in arguments])
    if origin is tuple and arguments[-1] is Ellipsis:
        return st.lists(_values(arguments[0]), max_size=2).map(tuple)
    if origin is tuple:
        return st.tuples(*map(_values, arguments))
    if origin is dict:
        return st.dictionaries(_values(arguments[0]), _values(arguments[1]), max_size=2)
    if issubclass(hint, Struct) or hasattr(hint, "_fields"):  # or a named tuple
        return st.builds(
            hint, **{n: CHECKED.get(n, _values(h)) for n, h in get_type_hints(hint).items()}
        )
    assert issubclass(hint, StrEnum)
    return st.sampled_from(list(hint))


@pytest.mark.parametrize("kind", VALUES, ids=lambda kind: kind.__name__)
@given(data=st.data())
@settings(max_examples=10, deadline=None)
def test_a_value_goes_through_json_unchanged(kind: type[Struct], data: st.DataObject) -> None:
    """What is written by one step is what the next step reads."""
    value = data.draw(_values(kind))
    line = encode(value)
    assert b"\n" not in line
    assert decode(line, kind) == value


def test_help_describes_options_and_results() -> None:
    """Each option has a line in the help of its class, and a result its figures."""
    for kind in (s3unzip.Options, s3unzip.ObjectProperties, s3unzip.StoreConfig):
        shown = pydoc.getdoc(kind)
        lines = [f"{row.field}: {row.help}" for row in read_options(kind)]
        assert all(len(line.split()) > 1 and line in shown for line in lines)
    for figures in ("bytes_in, bytes_out: ", "started, finished: Unix seconds."):
        assert figures in pydoc.getdoc(s3unzip.Report)
