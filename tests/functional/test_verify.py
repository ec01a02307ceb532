"""Verify: every way in which a destination can differ from the directory."""

import zipfile
from collections.abc import Iterator

import pytest

from s3unzip.errors import RejectedError, ServiceFaultError, ThrottledError
from s3unzip.model import Options, Request, Verdict, decode, encode
from s3unzip.stores.ports import ListedObject, ObjectFacts, StoredObject
from s3unzip.verification import Comparison, Difference, Effort, Kind, Verification, verify_objects
from tests.memory import MemoryBucket
from tests.runs import World
from tests.zips import Entry, build

MEMBERS = [
    Entry(f"d{n % 3}/f{n:02}-ü.json", b'{"n": %d}' % n * (n + 1), method=zipfile.ZIP_DEFLATED)
    for n in range(40)
]
NO_FACTS = ObjectFacts("text/plain", {})


class Extracted:
    """An archive that was extracted, and its request."""

    def __init__(self, options: Options | None = None, world: World | None = None) -> None:
        self.world = world or World()
        self.request = self.world.request(build(*MEMBERS), options)
        assert self.world.run_request(self.request).verdict is Verdict.COMPLETED

    def verify(
        self, options: Options | None = None, *, deep: bool = False, listed: int = 100
    ) -> Verification:
        """Verify with the run's options, or with others."""
        request = self.request
        if options is not None:
            request = Request(request.source, request.destination, options)
        return verify_objects(request, self.world.context, Effort(4, listed, deep=deep))

    def put(self, key: str, body: bytes, facts: ObjectFacts = NO_FACTS) -> None:
        """Write an object past the pipeline."""
        self.world.out.put(key, body, facts, if_absent=False)


def key_of(number: int) -> str:
    """Return the key of a member."""
    return f"archive/{MEMBERS[number].name!s}"


def test_all_equal() -> None:
    """After a run, every object is as the directory says, and no data was read to know it."""
    case = Extracted()
    found = case.verify()
    assert (found.verdict, found.members, found.equal) == (Comparison.EQUAL, 40, 40)
    assert (found.counts, found.differences) == ({}, ())
    assert (found.requests.list, found.requests.head, found.requests.get) == (1, 40, 1)


def test_every_kind_of_difference() -> None:
    """Missing, of another size, of another content, of unknown content, and extra."""
    case = Extracted()
    crc = case.world.out.objects[key_of(6)].facts
    case.world.out.delete([key_of(3)])
    case.put(key_of(4), b"longer than it was " * 9)
    case.put(key_of(5), MEMBERS[5].content)
    case.put(key_of(7), MEMBERS[7].content, crc)
    case.put("archive/zzz", b"extra")
    case.put("archive-2/other", b"not below the prefix")
    found = case.verify()
    assert found.verdict is Comparison.DIFFERENT
    assert found.equal == 36
    assert found.counts == {"missing": 1, "size": 1, "crc": 1, "no-crc": 1, "extra": 1}
    assert [(one.kind, one.key) for one in found.differences] == [
        (Kind.MISSING, key_of(3)),
        (Kind.SIZE, key_of(4)),
        (Kind.CRC, key_of(7)),
        (Kind.NO_CRC, key_of(5)),
        (Kind.EXTRA, "archive/zzz"),
    ]
    assert found.differences[1].expected == "40 bytes"
    assert found.differences[1].found == "171 bytes"


def test_deep_trusts_no_metadata() -> None:
    """Bytes that changed under a right checksum are found; a missing checksum does not matter."""
    case = Extracted()
    kept = case.world.out.objects[key_of(8)]
    case.put(key_of(8), b"x" * len(kept.body), kept.facts)
    case.put(key_of(5), MEMBERS[5].content)
    assert case.verify().counts == {"no-crc": 1}
    found = case.verify(deep=True)
    assert found.counts == {"crc": 1}
    assert found.differences[0].key == key_of(8)
    assert found.bytes_read == sum(len(member.content) for member in MEMBERS)
    assert found.requests.head == 0


def test_the_list_of_differences_is_bounded() -> None:
    """Of each kind the first few are kept and all are counted."""
    case = Extracted()
    case.world.out.delete([key_of(n) for n in range(20)])
    for number in range(10):
        case.put(f"archive/extra-{number}", b"")
    found = case.verify(listed=2)
    assert found.counts == {"missing": 20, "extra": 10}
    assert [one.kind for one in found.differences] == [Kind.MISSING] * 2 + [Kind.EXTRA] * 2


def test_members_that_are_not_asked_for_are_not_extra() -> None:
    """With a filter only its members are compared, and the others' objects are left alone."""
    case = Extracted()
    case.world.out.delete([key_of(0), key_of(1)])
    case.put("archive/d0/stranger", b"")
    found = case.verify(Options(include=("d0/*",)))
    assert (found.members, found.equal) == (14, 13)
    assert [(one.kind, one.key) for one in found.differences] == [
        (Kind.MISSING, key_of(0)),
        (Kind.EXTRA, "archive/d0/stranger"),
    ]


def test_keys_follow_the_template() -> None:
    """A run under another prefix is verified under it."""
    options = Options(key_template="x/{stem}.out")
    case = Extracted(options)
    assert case.verify().equal == 40
    assert case.verify(Options()).counts == {"missing": 40}


def test_refused_members_are_counted_apart() -> None:
    """A member that no run extracts is no difference; an object in its place is extra."""
    world = World()
    archive = build(Entry("good", b"1"), Entry("../evil", b"2"))
    request = world.request(archive)
    world.run_request(request)
    found = verify_objects(request, world.context, Effort(2, 9))
    assert (found.members, found.refused, found.equal) == (1, 1, 1)


def test_a_rejected_archive_cannot_be_compared() -> None:
    """Without a directory that can be trusted there is nothing to hold objects against."""
    world = World()
    with pytest.raises(RejectedError):
        verify_objects(world.request(b"no zip"), world.context, Effort(2, 9))


@pytest.mark.parametrize("range_keys", [1, 3, 7])
def test_ranges_meet_without_gap_or_overlap(range_keys: int) -> None:
    """However the keys are cut into ranges, the answer is the same."""
    case = Extracted()
    case.world.out.delete([key_of(n) for n in (0, 3, 39)])
    for extra in ("archive/", "archive/d0/f00", "archive/d1/zz", "archive/d2/~"):
        case.put(extra, b"")
    whole = case.verify()
    cut = verify_objects(case.request, case.world.context, Effort(4, 100, range_keys=range_keys))
    assert whole.counts == {"missing": 3, "extra": 4}
    assert (cut.counts, cut.differences, cut.equal) == (
        whole.counts,
        whole.differences,
        whole.equal,
    )


def test_a_listing_goes_on_over_pages() -> None:
    """More objects than one answer lists are all seen, once."""
    case = Extracted()
    for number in range(2_500):
        case.put(f"archive/d1/{number}", b"")
    found = case.verify()
    assert (found.equal, found.counts) == (40, {"extra": 2_500})
    assert found.requests.list == 3


class Throttling(MemoryBucket):
    """Refuses the first answers to each kind of question."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.left = {"list": times, "head": times}

    def head(self, key: str) -> StoredObject | None:
        """Refuse, then answer."""
        self._refuse("head")
        return super().head(key)

    def list_objects(self, prefix: str, first: str, last: str) -> Iterator[ListedObject]:
        """Break off in the middle of a page, then answer."""
        for number, entry in enumerate(super().list_objects(prefix, first, last)):
            if number == 3:
                self._refuse("list")
            yield entry

    def _refuse(self, kind: str) -> None:
        if self.left[kind]:
            self.left[kind] -= 1
            raise ThrottledError(f"{kind}: slow down")


def test_throttling_is_waited_out() -> None:
    """Refused LISTs and HEADs are tried again; nothing is counted twice."""
    world = World()
    world.buckets.buckets["out"] = Throttling(3)
    found = Extracted(world=world).verify()
    assert (found.equal, found.counts) == (40, {})
    assert found.requests.throttled == 6


def test_a_store_that_stays_down_ends_it() -> None:
    """When the retries are spent there is no verdict, but an error."""
    world = World()
    world.buckets.buckets["out"] = Throttling(10**9)
    with pytest.raises(ServiceFaultError):
        Extracted(world=world).verify()


def test_differences_go_through_json() -> None:
    """What is printed with --json is what was found."""
    case = Extracted()
    case.world.out.delete([key_of(1)])
    found = case.verify()
    assert decode(encode(found), Verification) == found
    assert found.differences == (Difference(key_of(1), Kind.MISSING, "16 bytes"),)
