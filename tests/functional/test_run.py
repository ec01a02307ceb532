"""Whole runs, plan to report: what users see of each archive, encrypted or kept as gzip."""

import gzip
import html
import io
import random
import re
import zlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from s3unzip import contradictions, pricing, settings
from s3unzip.api import verification
from s3unzip.cli.output import print_report
from s3unzip.errors import AccessDeniedError, S3UnzipError, StorageError, ThrottledError, UsageError
from s3unzip.extraction.batch import MAX_REFUSALS
from s3unzip.model import (
    GzipForm,
    Location,
    OnConflict,
    Options,
    Report,
    Request,
    Requests,
    Verdict,
)
from s3unzip.settling.loop import begin_run
from s3unzip.stores.ports import Buffer, ObjectFacts
from s3unzip.zip import Policy
from tests.support.memory import MemoryBucket, MemoryStores, World
from tests.support.zips import (
    DEFLATE,
    METHODS,
    STORED,
    Entry,
    build,
    compress,
    seal_aes,
    seal_zipcrypto,
    with_wrong_crc,
)

BAD = with_wrong_crc("bad", b"x")


def _entries(count: int) -> list[Entry]:
    return [
        Entry(f"d{n % 3}/f{n}.json", b'{"n": %d}' % n * (n + 1), method=8 * (n % 2))
        for n in range(count)
    ]


def test_a_small_archive_is_planned_with_one_get(world: World) -> None:
    """The suffix range returns tail, size and pin, and contains the complete directory."""
    assert world.records(
        begin_run(world.request(build(*_entries(20))), world.context).next.run
    ).read_plan().requests == Requests(get=1, put=2)


def test_objects_carry_what_verify_needs(world: World) -> None:
    """Type from the name, CRC-32, time and mode; where the archive has no mode, one to read by."""
    report = world.run(
        build(Entry("a/page.html", b"<p>hi"), Entry("a/b", b"1", attributes=0o100000 << 16))
    )
    facts = world.out.objects["archive/a/page.html"].facts
    assert facts.content_type == "text/html"
    assert facts.metadata == {
        "zip-crc32": f"{zlib.crc32(b'<p>hi'):08x}",
        "mode": "644",
        "mtime": "1776259990",  # 2026-04-15 13:33:10
        "s3unzip-run": report.run,
    }
    assert world.out.objects["archive/a/b"].facts.metadata["mode"] == "400"


def test_a_poison_member_fails_alone(world: World) -> None:
    """A wrong CRC is the outcome of its member; all others are extracted."""
    good = Entry("good.txt", b"good")
    archive = build(good, replace(BAD, name="poison.txt"), replace(good, name="last.txt"))
    report = world.run(
        archive,
        verdict="COMPLETED_WITH_ERRORS",
        extracted=2,
        failed=1,
        reasons={"crc-mismatch": 1},
    )
    assert [(one.key, one.offset) for one in report.failures] == [
        ("archive/poison.txt", archive.index(b"PK\3\4", 1))
    ]
    assert world.contents() == {"good.txt": b"good", "last.txt": b"good"}


def test_directories_are_counted_not_written(world: World) -> None:
    """S3 has no folders. An empty entry can be one by its attributes, which is a warning."""
    world.run(
        build(Entry("a/"), Entry("d", attributes=0o40755 << 16), Entry("d/b", b"1")),
        verdict="COMPLETED",
        directories=2,
        warnings={"dir-attr-without-slash": 1},
    )
    assert world.contents() == {"d/b": b"1"}


def test_skip_unchanged_puts_only_what_differs(world: World) -> None:
    """A second run lists, sends HEAD if sizes agree, and PUTs only members that differ."""
    archive = build(*_entries(40))
    world.run(archive)
    del world.out.objects["archive/d0/f0.json"]
    world.out.objects["archive/d1/f1.json"].facts.metadata["zip-crc32"] = "00000000"
    report = world.run(
        archive,
        Options(on_conflict=OnConflict.SKIP_UNCHANGED),
        verdict="COMPLETED",
        extracted=2,
        unchanged=38,
    )
    assert (world.out.puts, report.requests.head) == (40 + 2, 39)


def test_never_keeps_what_is_there(world: World) -> None:
    """An equal object is unchanged, a different one is a failed member; no PUT is tried."""
    world.out.add("archive/d0/f0.json", b"mine")
    for extracted, unchanged in ((3, 0), (0, 3)):
        report = world.run(
            build(*_entries(4)),
            Options(on_conflict=OnConflict.NEVER),
            extracted=extracted,
            unchanged=unchanged,
            reasons={"exists": 1},
        )
        assert report.requests.put == extracted + 2  # of records
    assert world.content("d0/f0.json") == b"mine"


class Refusing(MemoryBucket):
    """Refuses every key with ``bad`` in it, with an error, as long as there is one."""

    error: S3UnzipError | None = StorageError("400 InvalidKey")
    refused = 0

    def put(self, key: str, body: Buffer, facts: ObjectFacts, *, if_absent: bool) -> str:
        if "bad" in key and self.error is not None:
            self.refused += 1
            raise self.error
        return super().put(key, body, facts, if_absent=if_absent)


class Refused:
    """Members of which a store refuses the bad ones."""

    def __init__(self, good: int, bad: int) -> None:
        self.bucket = Refusing()
        self.world = World(buckets=MemoryStores(out=self.bucket))
        self.world.tune(retry_seconds=1.0)
        self.names = [f"good-{n:03}" for n in range(good)] + [f"bad-{n:03}" for n in range(bad)]

    def run(self, **expected: Any) -> Report:
        return self.world.run(build(*(Entry(name, b"x") for name in self.names)), **expected)

    def mend(self, report: Report) -> None:
        """Refuse no more: what is resumed completes."""
        self.bucket.error = None
        self.world.resume(report.run, verdict="COMPLETED")
        assert self.world.contents() == dict.fromkeys(self.names, b"x")


# By the reason of a report: a fault, and what a report says of one member besides its words.
FAULTS: dict[str, tuple[S3UnzipError, str]] = {
    "access-denied": (AccessDeniedError("s3:PutObject is missing"), ""),
    "tasks-failed": (ThrottledError("503 SlowDown"), "1 member has no outcome: "),
}


@pytest.mark.parametrize("reason", FAULTS)
def test_a_fault_of_the_store_stops_the_run(reason: str) -> None:
    """It ends after a few requests with the store's words, and `resume` continues it."""
    case = Refused(10, 490)
    case.bucket.error = FAULTS[reason][0]
    report = case.run(verdict="FAILED", reason=reason, failed=0)
    assert str(report.message).endswith(str(case.bucket.error))
    assert report.missing > 0
    assert case.bucket.refused < 490  # each PUT that succeeds in between renews the budget
    assert (report.requests.throttled > 0) is (reason == "tasks-failed")
    case.mend(report)


@pytest.mark.parametrize("count", [1, MAX_REFUSALS + 5])
def test_a_refused_member_fails_alone(count: int) -> None:
    """However many are refused: the store takes what it can."""
    case = Refused(80, count)
    reasons = {"store-refused": count}
    report = case.run(verdict="COMPLETED_WITH_ERRORS", reason=None, extracted=80, reasons=reasons)
    if count == 1:  # refused once more, it is the member's outcome: no task was left undone
        case.world.resume(report.run, failed=True, reasons=reasons)


@pytest.mark.parametrize("reason", FAULTS)
def test_failed_members_again_meets_a_fault(reason: str) -> None:
    """It is FAILED with that reason, not COMPLETED_WITH_ERRORS with the old one."""
    case = Refused(1, 1)
    first = case.run()
    case.bucket.error, words = FAULTS[reason]
    case.mend(
        case.world.resume(
            first.run,
            failed=True,
            verdict="FAILED",
            reason=reason,
            message=f"{words}{case.bucket.error}",
            extracted=1,
            missing=1,
        )
    )


def test_the_marker_is_written_last_if_asked(world: World) -> None:
    """Readers that need all or nothing wait for _SUCCESS."""
    world.run(build(*_entries(3)), Options(marker=True))
    assert list(world.out.objects)[3:] == ["archive/_SUCCESS"]


@pytest.mark.parametrize("prefix", ["", "folder/"])
def test_a_member_does_not_overwrite_its_archive(world: World, prefix: str) -> None:
    """The member that would have the key of the archive fails; others in the bucket do not."""
    raw = build(*(Entry(name, name.encode()) for name in ("own.zip", "OWN.zip", "own.zip/a")))
    world.out.add(f"{prefix}own.zip", raw)
    request = Request(
        Location("s3", "out", f"{prefix}own.zip"),
        Location("s3", "out", prefix),
        Options(key_template="{member}"),
    )
    report = world.run_request(request)
    assert (report.extracted, report.reasons) == (2, {"name-reserved": 1})
    assert world.contents(prefix)["own.zip"] == raw


@pytest.mark.parametrize(
    ("exclude", "message", "records"),
    [("a", None, 3), ("**", "nothing is selected: the options exclude all 2", 2)],
)
def test_refused_members_are_not_excluded(
    world: World, exclude: str, message: str | None, records: int
) -> None:
    """The report says that nothing is selected only if the options exclude every member."""
    report = world.run(build(Entry("a"), Entry("../b")), Options(exclude=(exclude,)))
    assert (report.message or "").startswith(message or "")
    # A run without tasks counts the PUT of each record of its plan once.
    assert (bool(report.message), report.requests.put) == (bool(message), records)


def test_long_names_make_no_long_report(world: World) -> None:
    """Two hundred names of 65 KB are cut wherever they are shown; the report has some of them."""
    world.tune(failures_listed=150)
    names = [f"{start}{n:03}" + "n" * 65_000 for start in ("../", "") for n in range(100)]
    report = world.run(build(*map(Entry, names), Entry("fine", b"1")), failed=200, extracted=1)
    work = world.buckets.run_store(report.run)
    assert max(len(work.read(name)) for name in ("report.json", "outcomes/plan.jsonl")) < 200_000
    assert [len(failure.key) < 300 for failure in report.failures] == [True] * 150
    shown = io.StringIO()
    print_report(report, shown)
    assert len(shown.getvalue()) < 10_000


def test_gaps_between_members_are_not_read(world: World) -> None:
    """A batch skips a long gap with a separate range, and notes hidden data there."""
    world.tune(gap_bytes=1000)
    report = world.run(
        build(Entry("a", b"1" * 100, after=b"\0" * 300_000), Entry("b", b"2" * 100)),
        verdict="COMPLETED",
    )
    assert report.bytes_in < 250_000 + world.tuning.tail_bytes
    assert world.contents() == {"a": b"1" * 100, "b": b"2" * 100}


def _page_of(world: World, report: Report) -> str:
    page = world.buckets.run_store(report.run).read("report.html").decode()
    text = re.sub("<[^>]*>", " ", page[page.index("<body>") : page.index("<script>")])
    return " ".join(html.unescape(text).split())


def test_a_run_leaves_a_page() -> None:
    """It has verdict, totals, failures and what Amazon's services cost; a refusal leaves one."""
    world = World(platform=pricing.local(workers=2, priced_reads=True, priced_writes=True))
    report = world.run(build(*_entries(30), BAD), verdict="COMPLETED_WITH_ERRORS")
    page = _page_of(world, report)
    for text in (
        "Completed with errors.",
        "1 member of 31 failed; 30 members are in place",
        "archive/bad",
        "S3 PUT, COPY, POST, LIST",
    ):
        assert text in page
    assert "Lambda" not in page
    counted = report.requests
    assert counted.writes > 33
    assert report.cost == pytest.approx(5e-6 * counted.writes + 4e-7 * counted.reads)
    page = _page_of(world, world.run(b"no zip at all"))
    for text in ("Rejected.", "no-eocd", "nothing 13 B read"):
        assert text in page


SECRET = b"never-to-be-seen-7f3a"
SUFFIX = Options(as_gzip=GzipForm.SUFFIX)
ENCODING = Options(as_gzip=GzipForm.ENCODING)
TRUSTING = Options(as_gzip=GzipForm.SUFFIX, trust_crc=True)
LARGE = random.Random(3).randbytes(90_000) + b"text " * 9_000
SMALL = b"hello " * 30
ENTRIES = [
    Entry("small.txt", SMALL, DEFLATE),
    Entry("empty.txt", b"", STORED),
    Entry("kept/stored.bin", b"x" * 100, STORED, descriptor="signed32"),
    Entry("large.txt", LARGE, DEFLATE, descriptor="signed32"),
    Entry("large.bin", LARGE, STORED),
    Entry("edge.bin", b"e" * 65_535, STORED),
    Entry("beyond.bin", b"b" * 65_536, STORED),
    *(Entry(f"method-{method}", LARGE, method) for method in METHODS),
]
MEMBERS = {str(entry.name): entry.content for entry in ENTRIES}
ARCHIVE = build(*ENTRIES)

Seal = Callable[[Entry, bytes], Entry]
sealed_each_way = pytest.mark.parametrize(
    "seal",
    [seal_zipcrypto, seal_aes, partial(seal_aes, version=1)],
    ids=["zipcrypto", "ae-2", "ae-1"],
)
SEALED = ("small.txt", "kept/stored.bin", "large.txt", "large.bin")


def _sealed(seal: Seal) -> bytes:
    sealed = (seal(entry, SECRET) for entry in ENTRIES if entry.name in SEALED)
    return build(*sealed, Entry("plain.txt", b"plain"))


OPENED = {name: MEMBERS[name] for name in SEALED} | {"plain.txt": b"plain"}


def _small_world(password: bytes | None = None) -> World:
    tuning = settings.Tuning(
        small_member=65_536,
        copy_from=65_536,
        split_from=80_000,
        segment_bytes=20_000,
        part_bytes=16_384,
        read_piece=10_000,
    )
    return World(tuning, policy=Policy(password=password))


@pytest.mark.parametrize(
    ("options", "ending", "kind", "encoding"),
    [
        (SUFFIX, ".gz", "application/gzip", None),
        (TRUSTING, ".gz", "application/gzip", None),
        (ENCODING, "", "text/plain", "gzip"),
    ],
)
def test_members_become_gzip_files(
    options: Options, ending: str, kind: str, encoding: str | None
) -> None:
    """Every object unpacks to its member, small and large.

    A suffix is in the keys and the types; with an encoding they stay, and the objects say gzip.
    """
    world = _small_world()
    report = world.run(ARCHIVE, options, verdict="COMPLETED")
    contents = world.contents()
    assert ({key: gzip.decompress(body) for key, body in contents.items()}, report.bytes_out) == (
        {f"{name}{ending}": content for name, content in MEMBERS.items()},
        sum(map(len, contents.values())),
    )
    facts = world.out.objects[f"archive/small.txt{ending}"].facts
    assert (facts.content_type, facts.metadata["zip-crc32"]) == (kind, f"{zlib.crc32(SMALL):08x}")
    assert {one.facts.content_encoding for one in world.out.objects.values()} == {encoding}
    for name in ("small.txt", "large.txt"):  # between header and trailer: the archive's own stream
        body = contents[f"{name}{ending}"]
        assert (body[:4], body[10:-8]) == (b"\x1f\x8b\x08\x00", compress(DEFLATE, MEMBERS[name]))


@pytest.mark.parametrize("content", [SMALL, LARGE])
def test_wrong_crc_is_found_in_flight(content: bytes) -> None:
    """What does not inflate to the directory's CRC-32 is not written, unless that is trusted."""
    wrong = with_wrong_crc("a", content, DEFLATE)
    world = _small_world()
    world.run(build(wrong), SUFFIX, reasons={"crc-mismatch": 1})
    assert (world.contents(), world.out.pending) == ({}, {})
    world.run(build(wrong), TRUSTING, extracted=1)


@pytest.mark.parametrize(
    ("options", "word"), [(ENCODING, "suffix"), (Options(trust_crc=True), "trust_crc")]
)
def test_a_folder_keeps_no_encoding(options: Options, word: str) -> None:
    """Content-Encoding in a folder, and trust without gzip, are refused before anything is read."""
    with pytest.raises(UsageError, match=word):
        contradictions.check_options(options, Location("file", "", "/out"))


@sealed_each_way
@pytest.mark.parametrize("as_gzip", [None, GzipForm.SUFFIX])
def test_encrypted_members_open(seal: Seal, as_gzip: GzipForm | None) -> None:
    """With the password every member is written, in batches and in streams, and none is copied."""
    world = _small_world(SECRET)
    report = world.run(
        _sealed(seal),
        Options(password_ref="file:/secrets/zip", as_gzip=as_gzip),
        verdict="COMPLETED",
    )
    contents = world.contents()
    if as_gzip:
        contents = {key[:-3]: gzip.decompress(body) for key, body in contents.items()}
    assert (contents, report.requests.copy) == (OPENED, 0)
    if seal is seal_aes and not as_gzip:  # without a declared CRC-32: computed, or none, but not 0
        for name, crc in (("small.txt", f"{zlib.crc32(SMALL):08x}"), ("large.bin", None)):
            assert world.out.objects[f"archive/{name}"].facts.metadata.get("zip-crc32") == crc


@sealed_each_way
def test_encrypted_members_are_known_again(seal: Seal) -> None:
    """They verify, and are not written again, but for small ones without a declared CRC-32."""
    world = _small_world(SECRET)
    request = world.request(_sealed(seal), Options(on_conflict=OnConflict.SKIP_UNCHANGED))
    world.run_request(request)
    for deep in (False, True):
        found = verification.verify_objects(
            request, world.context, verification.Effort(2, 10, deep=deep)
        )
        assert (found.verdict, found.equal) == (verification.Comparison.EQUAL, 5)
    report = world.run_request(request)
    assert (report.verdict, report.unchanged) == (
        Verdict.COMPLETED,
        len(OPENED) - 2 * (seal is seal_aes),
    )
