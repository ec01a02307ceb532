"""Verify: every way in which a destination can differ, and who says that an object is right."""

import random
import threading
import weakref
import zipfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import boto3
import pytest

from s3unzip.api.verification import (
    ComparedObject,
    Effort,
    Kind,
    Proof,
    Verification,
    WrittenObjects,
    read_written,
    verify_objects,
)
from s3unzip.errors import RejectedError, ServiceFaultError, StorageError, ThrottledError
from s3unzip.model import GzipForm, Location, Options, Request, Verdict, decode, encode
from s3unzip.stores.ports import ListPage, StoredObject
from tests.support import memory_server, processes, servers
from tests.support.memory import TINY, MemoryBucket, MemoryStores, World, check_fields
from tests.support.zips import Entry, build, log_lines

MEMBERS = [
    Entry(f"d{n % 3}/f{n:02}-ü.json", b'{"n": %d}' % n * (n + 1), method=zipfile.ZIP_DEFLATED)
    for n in range(40)
]


class Extracted:
    """An archive that was extracted over stores in memory, and its request."""

    def __init__(self, options: Options | None = None, world: World | None = None) -> None:
        self.world = world or World()
        self.request = self.world.request(build(*MEMBERS), options)
        self.out = self.world.out
        self.report = self.world.run_request(self.request)
        assert self.report.verdict is Verdict.COMPLETED
        self.lines: dict[str, ComparedObject] = {}  # what each object was found to be

    def written(self, *runs: str) -> WrittenObjects:
        return read_written(
            [self.world.records(run) for run in runs or (self.report.run,)],
            self.request.destination,
        )

    def verify(
        self,
        written: WrittenObjects | None = None,
        options: Options | None = None,
        *,
        deep: bool = False,
        listed: int = 100,
        range_keys: int = 4_990,
        **expected: object,
    ) -> Verification:
        """Compare; assert what some fields of the result are."""
        known, lines = self.request, list[ComparedObject]()
        found = verify_objects(
            Request(known.source, known.destination, options or known.options),
            self.world.context,
            Effort(4, listed, deep=deep, range_keys=range_keys),
            written,
            lines.append,
        )
        self.lines = {line.key: line for line in lines}
        return check_fields(found, expected)

    def forge(self, number: int, *, etag: str | None = None) -> str:
        """Change the bytes of an object past the pipeline, or its ETag alone; return its key."""
        key = _key_of(number)
        stored = self.out.objects[key]
        if etag is None:
            self.out.put(key, b"x" * len(stored.body), stored.facts, if_absent=False)
        else:
            self.out.objects[key] = replace(stored, etag=etag)
        return key


@pytest.fixture
def case() -> Extracted:
    return Extracted()


def _key_of(number: int) -> str:
    return f"archive/{MEMBERS[number].name!s}"


def test_every_kind_of_difference(case: Extracted) -> None:
    """Missing, of another size, of another content, of unknown content, and extra."""
    crc = case.out.objects[_key_of(6)].facts
    case.out.delete([_key_of(3)])
    case.out.add(_key_of(4), b"longer than it was " * 9)
    case.out.add(_key_of(5), MEMBERS[5].content)
    case.out.put(_key_of(7), MEMBERS[7].content, crc, if_absent=False)
    case.out.add("archive/zzz", b"extra")
    case.out.add("archive-2/other", b"not below the prefix")
    counts = {"missing": 1, "size": 1, "crc": 1, "no-crc": 1, "extra": 1}
    found = case.verify(verdict="DIFFERENT", equal=36, counts=counts)
    assert [(one.kind, one.key) for one in found.differences] == [
        (Kind.MISSING, _key_of(3)),
        (Kind.SIZE, _key_of(4)),
        (Kind.CRC, _key_of(7)),
        (Kind.NO_CRC, _key_of(5)),
        (Kind.EXTRA, "archive/zzz"),
    ]
    assert (found.differences[1].expected, found.differences[1].found) == ("40 bytes", "171 bytes")
    assert decode(encode(found), Verification) == found


def test_deep_trusts_no_metadata(case: Extracted) -> None:
    """Bytes that changed under a right checksum are found; a missing checksum does not matter."""
    key = case.forge(8)
    case.out.add(_key_of(5), MEMBERS[5].content)
    case.verify(counts={"no-crc": 1})
    size = sum(len(member.content) for member in MEMBERS)
    found = case.verify(deep=True, counts={"crc": 1}, bytes_read=size)
    assert (found.differences[0].key, found.requests.head) == (key, 0)


def test_members_that_are_not_asked_for_are_not_extra(case: Extracted) -> None:
    """With a filter only its members are compared; no other member, nor the marker, is extra."""
    case.out.delete([_key_of(0), _key_of(1)])
    case.out.add("archive/_SUCCESS", b"{}")
    case.out.add("archive/d0/stranger", b"")
    found = case.verify(options=Options(include=("d0/*",)), members=14, equal=13)
    assert [(one.kind, one.key) for one in found.differences] == [
        (Kind.MISSING, _key_of(0)),
        (Kind.EXTRA, "archive/d0/stranger"),
    ]


@pytest.mark.parametrize("range_keys", [1, 3, 7])
def test_ranges_meet_without_gap_or_overlap(case: Extracted, range_keys: int) -> None:
    """However the keys are cut into ranges, the answer is the same."""
    case.out.delete([_key_of(n) for n in (0, 3, 39)])
    for extra in ("archive/", "archive/d0/f00", "archive/d1/zz", "archive/d2/~"):
        case.out.add(extra, b"")
    counts = {"missing": 3, "extra": 4}
    whole = case.verify(counts=counts)
    case.verify(
        range_keys=range_keys, counts=counts, differences=whole.differences, equal=whole.equal
    )


def test_a_listing_goes_on_over_pages(case: Extracted) -> None:
    """All objects are seen, once; of each kind of difference the first few are kept."""
    case.out.delete([_key_of(n) for n in range(20)])
    for number in range(2_500):
        case.out.add(f"archive/d1/{number}", b"")
    found = case.verify(listed=2, equal=20, counts={"missing": 20, "extra": 2_500})
    assert [one.kind for one in found.differences] == [Kind.MISSING] * 2 + [Kind.EXTRA] * 2
    assert found.requests.list == 3


@dataclass(eq=False)
class Throttling(MemoryBucket):
    """Refuses the first answers to each kind of question."""

    times: int
    refused: Counter[str] = field(default_factory=Counter)

    def head(self, key: str) -> StoredObject | None:
        self._refuse("head")
        return super().head(key)

    def list_objects(self, prefix: str, first: str, last: str) -> Iterator[StoredObject]:
        for number, listed in enumerate(super().list_objects(prefix, first, last)):
            if number == 3:
                self._refuse("list")
            yield listed

    def _refuse(self, kind: str) -> None:
        if self.refused[kind] < self.times:
            self.refused[kind] += 1
            raise ThrottledError(f"{kind}: slow down")


def test_throttling_is_waited_out(world: World) -> None:
    """Refused LISTs and HEADs are tried again; nothing is counted twice."""
    world.buckets.buckets["out"] = Throttling(3)
    assert Extracted(world=world).verify(equal=40, counts={}).requests.throttled == 6


def test_without_an_answer_there_is_no_verdict() -> None:
    """When the retries are spent, and where the archive is refused, it is an error."""
    world = World()
    world.buckets.buckets["out"] = Throttling(10**9)
    with pytest.raises(ServiceFaultError):
        Extracted(world=world).verify()
    world = World()
    with pytest.raises(RejectedError):
        verify_objects(world.request(b"no zip"), world.context, Effort(2, 9))


@pytest.mark.parametrize("as_gzip", [None, GzipForm.SUFFIX])
def test_with_the_record_a_listing_proves_all(as_gzip: GzipForm | None) -> None:
    """Each object is named with its proof, the store, without a HEAD; others by their metadata."""
    case = Extracted(Options(as_gzip=as_gzip))
    found = case.verify(case.written(), equal=40, proofs={"record": 40}, records=(case.report.run,))
    assert (found.requests.list, found.requests.head, found.requests.get) == (1, 0, 1)
    assert {line.key: line.proof for line in case.lines.values()} == dict.fromkeys(
        case.out.objects, Proof.RECORD
    )
    found = case.verify(
        WrittenObjects(),
        verdict="EQUAL",
        members=40,
        counts={},
        differences=(),
        proofs={"metadata": 40},
    )
    assert (found.requests.list, found.requests.head, found.requests.get) == (1, 40, 1)


def test_forged_metadata_is_found_with_the_record(case: Extracted) -> None:
    """Other bytes of the same size under the right zip-crc32 pass without the record only."""
    key, size = case.forge(3), len(MEMBERS[3].content)
    found = case.verify(case.written(), counts={"crc": 1}, proofs={"record": 39}, bytes_read=size)
    assert (case.lines[key].difference, found.requests.head) == (Kind.CRC, 0)
    case.verify(counts={}, proofs={"metadata": 40})
    assert case.lines[key].proof is Proof.METADATA


def test_an_object_with_another_etag_is_read(case: Extracted) -> None:
    """A copy in place can change the ETag: the bytes decide, not the record."""
    key = case.forge(5, etag='"another-1"')
    case.verify(case.written(), counts={}, proofs={"record": 39, "read": 1})
    assert case.lines[key].proof is Proof.READ


def test_the_record_of_another_version_proves_nothing(case: Extracted) -> None:
    """Where the archive's member has other bytes now, the old run's record is none."""
    written = case.written()
    changed = [Entry(member.name, member.content.upper()) for member in MEMBERS]
    case.request = case.world.request(build(*changed))
    case.verify(written, equal=0, counts={"crc": 40})


def test_the_later_run_counts(case: Extracted) -> None:
    """Of two runs to the same keys the record of the last is compared."""
    records = case.world.buckets.records.objects.copy()
    case.forge(1)
    again = Request(case.request.source, case.request.destination, Options(exclude=("x",)))
    runs = (case.report.run, case.world.run_request(again).run)
    case.world.buckets.records.objects |= records
    case.verify(case.written(*runs), proofs={"record": 40}, records=runs)


def test_runs_to_other_buckets_and_broken_records_are_left_out(case: Extracted) -> None:
    """What cannot speak of the destination is not read."""
    records = [case.world.records(case.report.run)]
    assert not any(
        read_written(records, elsewhere).runs
        for elsewhere in (Location("s3", "elsewhere", ""), Location("file", "", "/out/"))
    )
    assert case.verify(case.written("never-begun", case.report.run)).proofs == {"record": 40}
    case.world.buckets.records.add(f"runs/{case.report.run}/run.json", b'{"format": 4}')
    warnings: list[str] = []
    case.verify(
        read_written(records, case.request.destination, warnings.append), proofs={"metadata": 40}
    )
    assert len(warnings) == 1


def test_every_kind_of_task_records_the_etag() -> None:
    """Streamed, copied and split members have one too, also after they were settled again."""
    text = log_lines(300_000)
    world = World(TINY)
    request = world.request(
        build(
            Entry("split.log", text, method=zipfile.ZIP_DEFLATED),
            Entry("stream.txt", text[:20_000], method=zipfile.ZIP_DEFLATED),
            Entry("copied.bin", random.Random(1).randbytes(20_000)),
            Entry("small", b"small"),
        )
    )
    report = world.run_request(request)
    world.assert_clean(report)
    for _ in range(2):
        assert {"batch", "copy", "scan", "stream"} <= {task.kind for task in world.tasks(report)}
        found = verify_objects(
            request,
            world.context,
            Effort(2),
            read_written([world.records(report.run)], request.destination),
        )
        assert (found.proofs, found.requests.head) == ({"record": 4}, 0)
        assert world.resume(report.run).extracted == 4


@pytest.mark.skipif(
    servers.find_versitygw() is None,
    reason="VersityGW is not installed: go install github.com/versity/versitygw/...",
)
def test_the_command_line_over_a_real_server(program: processes.Program) -> None:
    """`run` records, `verify` finds the record, names its proof, and finds a forgery.

    Without the record it is found only where S3 keeps a CRC-32 and the metadata has none.
    """
    program.variables |= {**servers.VERSITY, "AWS_DEFAULT_REGION": "us-east-1"}
    program.add("a.zip", *MEMBERS)
    with servers.run_versitygw() as (url, _):
        places = ("a.zip", "s3://bucket/", "--endpoint-url", url)
        key, secret = servers.VERSITY.values()
        client = boto3.Session(key, secret, region_name="us-east-1").client("s3", endpoint_url=url)
        client.create_bucket(Bucket="bucket")
        program.extract(*places, "--quiet").ends(0)
        program.run("verify", *places, "--objects", "lines").ends(0).prints(
            "40 verified by the store: the ETag has not changed", ", 1 LIST, 0 HEAD, 1 GET"
        )
        assert program.files()["lines"].count(b'"proof":"record"') == 40
        key = _key_of(4).replace("archive", "a")
        facts = client.head_object(Bucket="bucket", Key=key)["Metadata"]
        for algorithm, metadata, found_without in (("SHA256", facts, 0), ("CRC32", {}, 1)):
            client.put_object(
                Bucket="bucket",
                Key=key,
                Body=b"x" * len(MEMBERS[4].content),
                Metadata=metadata,
                ChecksumAlgorithm=algorithm,  # type: ignore[arg-type]  # one of boto3's literals
            )
            program.run("verify", *places, "--no-records").ends(found_without)
            program.run("verify", *places).ends(1).prints(f"crc      {key}")
        (report,) = program.extract(*places, "--on-conflict", "skip-unchanged", "--json").lines
        assert (report["unchanged"], report["extracted"]) == (39, 1)
        program.run("verify", *places).ends(0).prints("40 verified by the store")


class Key(str):
    """A key to which a weak reference is possible."""

    __slots__ = ("__weakref__",)


@dataclass(eq=False)
class CrowdedBucket(MemoryBucket):
    """Lists many pages of other objects after its own, and notes how many of their keys live."""

    extra: list[weakref.ref[Key]] = field(default_factory=list)
    most: int = 0  # keys of earlier pages that live when a page is listed

    def list_page(self, prefix: str, first: str, last: str, token: str | None) -> ListPage:
        if token is None:
            return list(self.list_objects(prefix, first, last)), "0"
        self.most = max(self.most, sum(key() is not None for key in self.extra))
        keys = [Key(f"{prefix}~{token}{number:03}") for number in range(100)]
        self.extra += map(weakref.ref, keys)
        following = None if token == "9" else str(int(token) + 1)
        return [StoredObject(key, 1) for key in keys], following


def test_the_keys_of_extra_objects_are_not_kept() -> None:
    """A destination may have any number of them: at most two pages are in memory."""
    bucket = CrowdedBucket()
    case = Extracted(world=World(buckets=MemoryStores(out=bucket)))
    assert verify_objects(
        case.request, case.world.context, Effort(4, 0), case.written()
    ).counts == {"extra": 1_000}
    assert bucket.most <= 250


class ForgetfulList(MemoryBucket):
    """Does not list one of its objects."""

    def list_objects(self, prefix: str, first: str, last: str) -> Iterator[StoredObject]:
        for number, entry in enumerate(super().list_objects(prefix, first, last)):
            if number != 2:
                yield entry


def test_an_object_that_the_list_leaves_out_is_an_error() -> None:
    """A member that HEAD finds is there: the verdict would be wrong."""
    with pytest.raises(StorageError, match="exists, but the store does not list it"):
        Extracted(world=World(buckets=MemoryStores(out=ForgetfulList()))).verify()


PAGE = (
    "<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>{0}"
    "</NextContinuationToken><Contents><Key>a/{0}</Key><Size>1</Size></Contents></ListBucketResult>"
)


def test_an_error_in_a_later_range_ends_the_listing_of_an_earlier_one(
    program: processes.Program, s3: memory_server.MemoryS3
) -> None:
    """The listing of the first range has 1,000 pages; after the error it ends before the last."""
    program.add("a.zip", *(Entry(f"{number:04}", b"") for number in range(4_991)))
    is_refused = threading.Event()
    pages = iter([servers.Reply(200, PAGE.format(n).encode()) for n in range(1_000, 2_000)])

    def list_page(asked: servers.Asked) -> servers.Reply | None:
        if "start-after" in asked.query:  # the range of the last member
            is_refused.set()
            return servers.DENIED
        assert is_refused.wait(servers.HANG_SECONDS)
        return next(pages, None)

    s3.spoil = list_page
    program.run("verify", "a.zip", "s3://out/", "--endpoint-url", s3.url).ends(6, "AccessDenied")
    assert next(pages, None) is not None


def test_an_environment_that_is_not_found_leaves_the_file_of_proofs(
    program: processes.Program,
) -> None:
    """The file is opened for writing only after the records of runs are found."""
    program.add("a.zip", *MEMBERS)
    (program.folder / "lines").write_text("earlier")
    program.run(
        *("verify", "a.zip", "out", "--objects", "lines"),
        *("--env", "none", "--region", "eu-west-1", "--profile", "none"),
    ).ends(2, "The config profile (none) could not be found")
    assert program.files()["lines"] == b"earlier"
