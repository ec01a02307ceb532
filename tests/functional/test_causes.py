"""A run that could not go on says why: the fault that its tasks met last."""

import pytest

from s3unzip.errors import AccessDeniedError, S3UnzipError, StorageError, ThrottledError
from s3unzip.model import Verdict
from s3unzip.stores.ports import Buffer, ObjectFacts
from tests.memory import MemoryBucket, MemoryStores
from tests.runs import World
from tests.zips import Entry, build


class Refusing(MemoryBucket):
    """A bucket that refuses the keys with ``bad`` in them, with an error that tests change."""

    def __init__(self) -> None:
        super().__init__()
        self.error: S3UnzipError | None = StorageError("400 InvalidKey")

    def put(self, key: str, body: Buffer, facts: ObjectFacts, *, if_absent: bool) -> str:
        """Write one object, or refuse it."""
        if "bad" in key and self.error is not None:
            raise self.error
        return super().put(key, body, facts, if_absent=if_absent)


@pytest.fixture
def bucket() -> Refusing:
    """The destination."""
    return Refusing()


@pytest.fixture
def world(bucket: Refusing) -> World:
    """A machine that writes to the destination, and soon gives up."""
    world = World(buckets=MemoryStores(out=bucket))
    world.tune(retry_seconds=1.0)
    return world


ARCHIVE = build(Entry("good", b"1"), Entry("bad", b"2"))


def test_tasks_that_did_not_end(world: World, bucket: Refusing) -> None:
    """The report has the words of the store, and a resume does what is left."""
    bucket.error = ThrottledError("503 SlowDown of s3://out")
    report = world.run(ARCHIVE)
    assert (report.verdict, report.reason) == (Verdict.FAILED, "tasks-failed")
    assert str(report.message).endswith(" no outcome: 503 SlowDown of s3://out")
    bucket.error = None
    assert world.resume(report.run).verdict is Verdict.COMPLETED


def test_failed_members_again_meets_a_missing_right(world: World, bucket: Refusing) -> None:
    """It is FAILED with that reason, not COMPLETED_WITH_ERRORS with the old one."""
    first = world.run(ARCHIVE)
    assert first.reasons == {"store-refused": 1}
    bucket.error = AccessDeniedError("s3:PutObject is missing")
    report = world.resume(first.run, failed=True)
    assert (report.verdict, report.reason) == (Verdict.FAILED, "access-denied")
    assert report.message == "s3:PutObject is missing"
    assert (report.extracted, report.missing) == (1, 1)
    bucket.error = None
    assert world.resume(report.run).verdict is Verdict.COMPLETED
    assert world.contents() == {"good": b"1", "bad": b"2"}


def test_failed_members_again_does_not_end(world: World, bucket: Refusing) -> None:
    """The members that are left are counted, with the cause; a resume may follow."""
    first = world.run(ARCHIVE)
    bucket.error = ThrottledError("503 SlowDown of s3://out")
    report = world.resume(first.run, failed=True)
    assert (report.verdict, report.reason) == (Verdict.FAILED, "tasks-failed")
    assert report.message == "1 member has no outcome: 503 SlowDown of s3://out"
    bucket.error = None
    assert world.resume(report.run).verdict is Verdict.COMPLETED


def test_failed_members_again_fails_as_before(world: World) -> None:
    """The member's failure is its outcome: no task was left undone."""
    first = world.run(ARCHIVE)
    report = world.resume(first.run, failed=True)
    assert (report.verdict, report.reason) == (Verdict.COMPLETED_WITH_ERRORS, None)
    assert report.reasons == {"store-refused": 1}
