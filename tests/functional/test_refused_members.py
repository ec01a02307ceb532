"""Members that the store refuses, and members that reach into the next one: each by itself."""

from s3unzip.errors import StorageError
from s3unzip.extraction.batch import REFUSALS
from s3unzip.model import Verdict
from s3unzip.stores.ports import Buffer, ObjectFacts
from tests.memory import MemoryBucket, MemoryStores
from tests.runs import World
from tests.zips import Entry, build


class Picky(MemoryBucket):
    """A bucket that refuses every key with this word in it."""

    word = "bad"

    def put(self, key: str, body: Buffer, facts: ObjectFacts, *, if_absent: bool) -> str:
        """Write one object, or refuse it."""
        if self.word in key:
            raise StorageError(f"400 for {key}")
        return super().put(key, body, facts, if_absent=if_absent)


def entries(word: str, count: int) -> list[Entry]:
    """Return small members with a word in their names."""
    return [Entry(f"{word}-{number:03}", b"x") for number in range(count)]


def test_a_refused_member_fails_alone() -> None:
    """Its outcome has the store's words; all others are written."""
    world = World(buckets=MemoryStores(out=Picky()))
    report = world.run(build(*entries("good", 50), *entries("bad", 1)))
    assert report.verdict is Verdict.COMPLETED_WITH_ERRORS
    assert (report.extracted, report.failed, report.reasons) == (50, 1, {"store-refused": 1})
    assert len(world.contents()) == 50


def test_refusals_do_not_end_a_run_whose_other_members_are_taken() -> None:
    """However many: the store takes what it can."""
    world = World(buckets=MemoryStores(out=Picky()))
    refused = REFUSALS + 5
    report = world.run(build(*entries("good", 80), *entries("bad", refused)))
    assert report.verdict is Verdict.COMPLETED_WITH_ERRORS
    assert (report.extracted, report.failed) == (80, refused)


def test_a_store_that_refuses_all_ends_the_run() -> None:
    """A million members would be refused one by one."""
    world = World(buckets=MemoryStores(out=Picky()))
    report = world.run(build(*entries("bad", REFUSALS + 100)))
    assert report.verdict is Verdict.FAILED
    assert report.extracted == 0


def test_of_two_members_that_overlap_the_first_stands() -> None:
    """Only the local header tells: its extra field moves the data into the next member."""
    extra = b"\x99\x99\0\0"  # a field without data, which the directory does not know of
    first = Entry("a", b"datPK\x03\x04", data=extra + b"dat", local={"extra_length": len(extra)})
    world = World()
    report = world.run(build(first, Entry("b", b"hello"), Entry("c", b"!")))
    assert report.reasons == {"overlap": 1}
    assert world.contents() == {"a": first.content, "c": b"!"}
    world = World()
    assert world.run(build(first, Entry("b", b"hello"))).reasons == {"overlap": 1}
    assert world.contents() == {"a": first.content}
