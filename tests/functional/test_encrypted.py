"""Runs of encrypted archives: small, streamed and large members, and where the password is not."""

import io
import logging
import random
import zlib
from collections.abc import Callable

import pytest

from s3unzip.api.archive import open_in
from s3unzip.model import OnConflict, Options, Report, Verdict
from s3unzip.verification import Comparison, Effort, verify_objects
from s3unzip.zip import Policy
from tests.encrypting import seal_aes, seal_zipcrypto
from tests.runs import World
from tests.zips import DEFLATE, STORED, Entry, build

SECRET = b"never-to-be-seen-7f3a"
OPTIONS = Options(password_ref="file:/secrets/zip")
LARGE = random.Random(7).randbytes(90_000) + b"text " * 4_000


def seal_ae1(entry: Entry, password: bytes) -> Entry:
    """Encrypt as AE-1."""
    return seal_aes(entry, password, version=1)


sealed_each_way = pytest.mark.parametrize("seal", [seal_zipcrypto, seal_aes, seal_ae1])


def opening(password: bytes = SECRET) -> World:
    """Return a world with a password, on which 64 KiB are a large member."""
    world = World(policy=Policy(password=password))
    world.tune(small_member=65_536, copy_from=65_536, part_bytes=16_384, read_piece=10_000)
    return world


def archive(seal: Callable[[Entry, bytes], Entry], password: bytes = SECRET) -> bytes:
    """Return an archive of small and large encrypted members, and a plain one."""
    return build(
        seal(Entry("small.txt", b"hello" * 20, DEFLATE), password),
        seal(Entry("stored.txt", b"hello", STORED, descriptor="signed32"), password),
        seal(Entry("large.bin", LARGE, DEFLATE), password),
        seal(Entry("copied.bin", LARGE, STORED), password),
        Entry("plain.txt", b"plain"),
    )


CONTENTS = {
    "small.txt": b"hello" * 20,
    "stored.txt": b"hello",
    "large.bin": LARGE,
    "copied.bin": LARGE,
    "plain.txt": b"plain",
}


@sealed_each_way
def test_all_members_open(seal: Callable[[Entry, bytes], Entry]) -> None:
    """With the password every member is written, in batches and in streams, and none is copied."""
    world = opening()
    report = world.run(archive(seal), OPTIONS)
    assert report.verdict is Verdict.COMPLETED, report.failures
    assert world.contents() == CONTENTS
    assert report.requests.copy == 0


@sealed_each_way
def test_without_password_only_these_fail(seal: Callable[[Entry, bytes], Entry]) -> None:
    """Without a password each encrypted member fails by name, and the plain one is written."""
    world = World()
    report = world.run(archive(seal))
    assert report.verdict is Verdict.COMPLETED_WITH_ERRORS
    assert report.reasons == {"encrypted": 4}
    assert world.contents() == {"plain.txt": b"plain"}


@sealed_each_way
def test_a_wrong_password_is_named(seal: Callable[[Entry, bytes], Entry]) -> None:
    """A wrong password fails the members with that reason; no upload is left behind."""
    world = opening(b"wrong")
    report = world.run(archive(seal), OPTIONS)
    assert report.reasons == {"wrong-password": 4}
    assert {failure.key for failure in report.failures} == {
        f"archive/{name}" for name in CONTENTS if name != "plain.txt"
    }
    assert world.contents() == {"plain.txt": b"plain"}
    assert not world.out.pending


def test_an_altered_member_is_never_visible() -> None:
    """An AE-2 member without its right authentication code is not written, streamed or not."""
    raw = bytearray(archive(seal_aes))
    for name in (b"small.txt", b"copied.bin"):
        raw[raw.index(name) + 45] ^= 1  # behind name, extra field, salt and verifier
    world = opening()
    report = world.run(bytes(raw), OPTIONS)
    assert report.failed == 2
    assert set(report.reasons) <= {"aes-mac-mismatch", "corrupt-stream"}
    assert "copied.bin" not in world.contents()


def test_crc_metadata_of_ae2() -> None:
    """A small AE-2 member gets its computed CRC-32; a streamed one none, rather than 0."""
    world = opening()
    world.run(archive(seal_aes), OPTIONS)
    facts = {key: stored.facts.metadata for key, stored in world.out.objects.items()}
    assert facts["archive/small.txt"]["zip-crc32"] == f"{zlib.crc32(b'hello' * 20):08x}"
    assert "zip-crc32" not in facts["archive/large.bin"]


@sealed_each_way
def test_unchanged_members_are_skipped(seal: Callable[[Entry, bytes], Entry]) -> None:
    """What the directory has a CRC-32 of is not written again; AE-2 says nothing, so it is."""
    world = opening()
    options = Options(password_ref="file:/secrets/zip", on_conflict=OnConflict.SKIP_UNCHANGED)
    request = world.request(archive(seal), options)
    world.run_request(request)
    report = world.run_request(request)
    assert report.verdict is Verdict.COMPLETED
    assert report.unchanged == (1 if seal is seal_aes else 5)


@sealed_each_way
@pytest.mark.parametrize("deep", [False, True])
def test_verify(seal: Callable[[Entry, bytes], Entry], *, deep: bool) -> None:
    """What was extracted with the password verifies with it."""
    world = opening()
    request = world.request(archive(seal), OPTIONS)
    world.run_request(request)
    found = verify_objects(request, world.context, Effort(2, 10, deep=deep))
    assert (found.verdict, found.equal) == (Comparison.EQUAL, 5)


def test_cat_and_ls() -> None:
    """One member is read and the listing names the method below the encryption."""
    world = opening()
    request = world.request(archive(seal_aes), Options(names=("large.bin",)))
    source = world.buckets.source(request.source)
    opened = open_in(world.context, source, request.source, request.options)
    assert opened["large.bin"].read() == LARGE
    assert [member.problem for member in opened.members()] == [None]


@pytest.mark.parametrize("password", [SECRET, SECRET + b"?"])
def test_the_password_is_nowhere(password: bytes) -> None:
    """No object of a run, no log line and no representation holds the password."""
    log = io.StringIO()
    handler = logging.StreamHandler(log)
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        world = opening(password)
        report: Report = world.run(archive(seal_zipcrypto), OPTIONS)
        logging.getLogger("test").debug("%r %r", world.context, report)
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
    work = world.buckets.run_store(report.run)
    names = list(work.names(""))
    assert {"run.json", "rounds/00.jsonl", "report.json"} <= set(names)
    objects = b"".join(work.read(name) for name in names)
    for text in (objects, log.getvalue().encode()):
        assert SECRET not in text
        assert SECRET.hex().encode() not in text
    assert b"/secrets/zip" in objects  # where it is, is said
