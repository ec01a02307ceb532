"""How long a run waits for stores that fail for ever, whatever fails."""

from typing import NoReturn

import pytest

from s3unzip.errors import ServiceFaultError
from s3unzip.model import OnConflict, Options, Verdict
from s3unzip.settings import Tuning
from tests.support.contents import mixed_files
from tests.support.memory import ManualClock, MemoryArchive
from tests.support.runs import TINY, WHOLE, World
from tests.support.zips import Entry, build

LARGE = mixed_files(600_000)
MEMBERS = [Entry(f"small-{n:02}", b"%d" % n * 100, method=8) for n in range(40)]
MEMBERS += [Entry(f"large-{n}", LARGE + b"%d" % n, method=8) for n in range(4)]
ARCHIVE = build(*MEMBERS)


def _fail(*_: object, **__: object) -> NoReturn:
    raise ServiceFaultError("no answer")


@pytest.mark.parametrize("tuning", [TINY, WHOLE], ids=["split", "whole"])
@pytest.mark.parametrize(
    "failing",
    [
        ["put"],
        ["head"],
        ["create_upload"],
        ["upload_part"],
        ["complete_upload"],
        ["put", "head", "create_upload", "upload_part", "complete_upload", "abort_upload"],
        [],
    ],
    ids=lambda names: names[0] + "..." * (len(names) > 1) if names else "archive",
)
def test_a_run_waits_for_its_stores_once(
    failing: list[str], tuning: Tuning, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many tasks and rounds do not wait one after the other: one budget, then the report."""
    clock = ManualClock()
    world = World(tuning, clock=clock)
    world.tune(puts_in_flight=1, parts_in_flight=1)
    request = world.request(ARCHIVE, Options(on_conflict=OnConflict.NEVER))
    for name in failing:
        monkeypatch.setattr(world.out, name, _fail)
    if not failing:
        monkeypatch.setattr(MemoryArchive, "stream", _fail)
    report = world.run_here(request)
    assert (report.verdict, report.reason) == (Verdict.FAILED, "service-fault")
    # The clock adds the waits of threads that wait at once. Two budgets would be a second round.
    seconds = world.tuning.retry_seconds
    assert seconds / 2 < clock.slept < 2 * seconds
    monkeypatch.undo()
    assert world.resume_here(report.run).verdict is Verdict.COMPLETED
    assert world.out.pending == {}
