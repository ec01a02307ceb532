"""A bounded run of the fuzzer, and every input that it ever found."""

from pathlib import Path
from random import Random

import pytest

from tests.fuzz.answers import VARIABLES
from tests.fuzz.fuzzer import FOUND, TARGETS, run_case, run_directory, run_local

CASES = 250
FEWER = {"runs": 40, "answers": 60, "placing": 100}  # runs, requests and folders take longer


@pytest.fixture(autouse=True)
def variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set what a case would set in this process."""
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize("target", sorted(TARGETS))
def test_bounded_run(target: str) -> None:
    """A few hundred mutated inputs are extracted or refused in our own words."""
    cases = FEWER.get(target, CASES)
    refused = sum(run_case(target, 20_260, case) for case in range(cases))
    assert 0 < refused < cases


@pytest.mark.parametrize(
    ("target", "seed", "case"),
    [
        # A Deflate64 match from before the beginning of the data is judged the same, however cut.
        *(("codecs", 301, 57_580), ("codecs", 201, 127_782)),
        # A negative chunk and a length of 5,000 digits are refused in our own words.
        *(("answers", 1, case) for case in (3_292, 14_184, 84_719, 112_335)),
    ],
)
def test_found_case(target: str, seed: int, case: int) -> None:
    """Cases that were once a crash are none."""
    run_case(target, seed, case)


@pytest.mark.parametrize("path", sorted(FOUND.glob("*.zip")), ids=lambda path: path.name)
def test_found(path: Path) -> None:
    """Inputs that once broke the core no longer break it."""
    data = path.read_bytes()
    for attempt in range(6):
        run_directory(data, Random(attempt))
        run_local(data, Random(attempt))
