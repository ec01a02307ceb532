"""The upload of a large member: what an earlier attempt did, conflicts, and lost answers."""

from collections.abc import Sequence

import pytest

from s3unzip.errors import NotFoundError, ServiceFaultError
from s3unzip.extraction.stream import stream_member
from s3unzip.extraction.uploads import UploadGoneError, begin_upload, complete_once, finish_upload
from s3unzip.model import Options, Part, Status
from s3unzip.runs.step import TaskAttempt
from s3unzip.settling.loop import begin as begin_run
from s3unzip.stores.ports import Upload
from tests.support import zips
from tests.support.contents import log_lines
from tests.support.memory import MemoryBucket, MemoryStores
from tests.support.runs import KEY, WHOLE, World

CONTENT = log_lines(60_000)
BIG = zips.Entry("big", CONTENT, zips.DEFLATE)


def _begin(world: World, entry: zips.Entry = BIG, options: Options | None = None) -> TaskAttempt:
    step = begin_run(world.request(zips.build(entry), options), world.context)
    (task,) = step.next.tasks
    return TaskAttempt(world.records(step.next.run).read_plan().run, task, world.context)


def _stream(attempt: TaskAttempt) -> list[Status]:
    stream_member(attempt, attempt.read_rows(attempt.task.rows))
    return [outcome.status for outcome in attempt.outcomes]


def test_a_descriptor_that_disagrees_fails_a_streamed_member() -> None:
    """What follows the data is checked before the upload is completed."""
    world = World(WHOLE)
    entry = zips.Entry("big", CONTENT, zips.DEFLATE, descriptor="signed32", described={"crc32": 1})
    assert _stream(_begin(world, entry)) == [Status.FAILED]
    assert world.content("big") is None


def test_an_upload_that_somebody_aborted_is_told_as_gone() -> None:
    """Nothing is noted of the member, so that the task is tried again."""
    world = World(WHOLE)
    attempt = _begin(world)
    (row,) = attempt.read_rows(attempt.task.rows)
    upload = begin_upload(attempt, row)
    world.out.abort_upload(upload)
    with pytest.raises(UploadGoneError):
        finish_upload(attempt, row, upload, ())
    assert attempt.outcomes == []


class LosingBucket(MemoryBucket):
    """Completes an upload, and loses the answer."""

    def complete_upload(self, upload: Upload, parts: Sequence[Part], *, if_absent: bool) -> str:
        etag = super().complete_upload(upload, parts, if_absent=if_absent)
        raise ServiceFaultError(f"connection lost before {etag} came")


def test_a_completion_whose_answer_was_lost_is_found_by_the_object() -> None:
    """The second attempt is told that there is no such upload; the member is there."""
    attempt = _begin(World(WHOLE, MemoryStores(out=LosingBucket())))
    assert _stream(attempt) == [Status.EXTRACTED]
    assert attempt.outcomes[0].etag is None
    assert attempt.calls.requests.complete == 2


def test_an_upload_that_was_never_there_is_not_taken_for_done() -> None:
    """The first attempt is told so: what is under the key is not of this upload."""
    world = World(WHOLE)
    attempt = _begin(world)
    (row,) = attempt.read_rows(attempt.task.rows)
    assert _stream(attempt) == [Status.EXTRACTED]
    upload = begin_upload(attempt, row)
    world.out.abort_upload(upload)
    with pytest.raises(NotFoundError):
        complete_once(attempt, row, upload, ())
    assert world.out.head(KEY + "big") is not None
