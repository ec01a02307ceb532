"""Two runs of one machine write the same keys: neither drops what the other one has open."""

from pathlib import Path

import pytest

from s3unzip.local.machine import drop_uploads
from s3unzip.local.run_folders import OpenUploads, lock_run
from s3unzip.runs.step import Step
from s3unzip.stores.ports import ObjectFacts
from tests.functional.large.test_copy import ARCHIVE, CONTENT
from tests.support.memory import MemoryBucket, MemoryStores
from tests.support.runs import KEY, WHOLE, World

FACTS = ObjectFacts("text/plain", {})


@pytest.mark.parametrize("copies", [True, False])
def test_uploads_of_a_run_that_is_at_work_stay(tmp_path: Path, *, copies: bool) -> None:
    """They go with the others once nobody works on their run; a run's own always go."""
    notes, home = OpenUploads(str(tmp_path)), str(tmp_path)
    world = World(WHOLE, MemoryStores(out=MemoryBucket(copies=copies)), uploads=notes)
    report = world.run(ARCHIVE)
    world.assert_clean(report, **{"s.bin": CONTENT})
    assert not list(Path(tmp_path, "uploads").iterdir())  # it has none open
    run = world.records(report.run).read_plan().run
    step = Step(run, "test", world.context, world.context.calls())
    theirs, ours, _ = (world.out.create_upload(KEY + "s.bin", FACTS) for _ in range(3))
    notes.note(theirs, "2026-11-25/000000-other-run")
    notes.note(ours, run.id)
    with lock_run(home, "2026-11-25/000000-other-run"), lock_run(home, run.id):
        assert drop_uploads(step) == 2
        assert list(world.out.pending) == [theirs]
    assert drop_uploads(step) == 1
    assert not world.out.pending
    assert not list(Path(tmp_path, "uploads").iterdir())
