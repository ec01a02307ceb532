"""A bounded run of the fuzzer, and every input that it ever found."""

from pathlib import Path
from random import Random

import pytest

from tests.fuzz.fuzzer import (
    FOUND,
    TARGETS,
    VARIABLES,
    read_answer,
    run_case,
    run_directory,
    run_local,
)
from tests.support.servers import set_variables


@pytest.fixture(autouse=True)
def variables(monkeypatch: pytest.MonkeyPatch) -> None:
    set_variables(monkeypatch, VARIABLES)


@pytest.mark.parametrize("target", sorted(TARGETS))
def test_bounded_run(target: str) -> None:
    """A few hundred mutated inputs are extracted or refused in our own words."""
    # Requests and folders take longer.
    cases = {"answers": 60, "placing": 100}.get(target, 250)
    assert 0 < sum(run_case(target, 20_260, case) for case in range(cases)) < cases


@pytest.mark.parametrize("chunk", [b"-a", b"-1", b"-" + b"9" * 5_000])
@pytest.mark.parametrize(
    "field", [b"Transfer-Encoding: chunked", b"Content-Length: " + b"9" * 5_000]
)
def test_found_answers(field: bytes, chunk: bytes) -> None:
    """A negative chunk and a length of 5,000 digits are refused in our own words."""
    answer = b"HTTP/1.1 206 Partial Content\r\n%s\r\n" % field
    answer += b"Content-Range: bytes 980-999/1000\r\n\r\n%s\r\n0123456789\r\n" % chunk
    # Not by each request: a HEAD has no body. Errors that are not ours are raised.
    assert sum(read_answer(answer, Random(seed)) for seed in range(9)) > 0


@pytest.mark.parametrize("path", sorted(FOUND.glob("*.zip")), ids=lambda path: path.name)
def test_found(path: Path) -> None:
    """Inputs that once broke the core no longer break it."""
    data = path.read_bytes()
    for attempt in range(6):
        run_directory(data, Random(attempt))
        run_local(data, Random(attempt))
