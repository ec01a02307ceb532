"""The rule on conflicts, each choice against each thing that can be under a member's key."""

from __future__ import annotations

from zlib import crc32

import pytest

from s3unzip.model import Location, OnConflict, Options, Pin, PlannedMember, Run, Status
from s3unzip.objects.conflict import explain_refusal, must_be_absent, resolve_conflict
from s3unzip.runs.step import Step
from s3unzip.stores.ports import ObjectFacts
from s3unzip.zip import Member
from tests.runs import Bench

BODY, OTHER = b"content", b"another"
ROW = PlannedMember(Member(7, "key", None, 0, 0, 7, 7, crc32(BODY), 0, 0, None, None), "out/key")
UNCHANGED, FAILED = Status.UNCHANGED, Status.FAILED
OVERWRITE, SKIP, NEVER = OnConflict.OVERWRITE, OnConflict.SKIP_UNCHANGED, OnConflict.NEVER


def make_step(rule: OnConflict, there: bytes | None) -> Step:
    """Return a step of a run with that rule; `there` is under the member's key."""
    bench = Bench()
    if there is not None:
        facts = ObjectFacts("text/plain", {"zip-crc32": f"{crc32(there):08x}"})
        bench.out.put(ROW.key, there, facts, if_absent=False)
    source, destination = Location("s3", "in", "a.zip"), Location("s3", "out", "")
    options = Options(on_conflict=rule)
    run = Run("a-1", source, Pin(1), destination, options, "out/", created=0.0)
    return Step(run, "batch-1", bench.context, bench.context.calls())


@pytest.mark.parametrize(
    ("rule", "there", "expected"),
    [
        (OVERWRITE, None, None),
        (OVERWRITE, BODY, None),
        (OVERWRITE, OTHER, None),
        (SKIP, None, None),
        (SKIP, BODY, UNCHANGED),
        (SKIP, OTHER, None),
        (NEVER, None, None),
        (NEVER, BODY, UNCHANGED),
        (NEVER, OTHER, FAILED),
    ],
)
def test_before_the_write(rule: OnConflict, there: bytes | None, expected: Status | None) -> None:
    """None means that the member is written; `overwrite` sends no request."""
    step = make_step(rule, there)
    outcome = resolve_conflict(ROW, step)
    assert (outcome and outcome.status) == expected
    assert step.calls.requests.head == (rule is not OVERWRITE)
    if outcome is not None:
        assert (outcome.index, outcome.key) == (7, "out/key")
        assert outcome.reason == ("exists" if expected is FAILED else None)


@pytest.mark.parametrize(
    ("there", "expected"), [(BODY, UNCHANGED), (OTHER, FAILED), (None, FAILED)]
)
def test_after_a_refused_write(there: bytes | None, expected: Status) -> None:
    """A refused write is no failure where the object is the member already."""
    assert explain_refusal(ROW, make_step(NEVER, there)).status is expected


def test_only_never_writes_conditionally() -> None:
    """Only `never` asks the store to refuse a write over an existing key."""
    assert [must_be_absent(Options(on_conflict=rule)) for rule in OnConflict] == [
        rule is NEVER for rule in OnConflict
    ]
