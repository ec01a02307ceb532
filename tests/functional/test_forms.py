"""Members that are encrypted, and members that stay compressed: every object a gzip file."""

import gzip
import io
import logging
import random
import zlib
from collections.abc import Callable

import pytest

from s3unzip.errors import UsageError
from s3unzip.model import GzipForm, Location, OnConflict, Options, Request, Verdict
from s3unzip.planning.plan import check_request
from s3unzip.verification import Comparison, Effort, verify_objects
from s3unzip.zip import Policy
from tests.support.encrypting import seal_aes, seal_zipcrypto
from tests.support.runs import World
from tests.support.zips import DEFLATE, METHODS, STORED, Entry, build, compress

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


def _seal_ae1(entry: Entry, password: bytes) -> Entry:
    return seal_aes(entry, password, version=1)


sealed_each_way = pytest.mark.parametrize("seal", [seal_zipcrypto, seal_aes, _seal_ae1])
SEALED = ("small.txt", "kept/stored.bin", "large.txt", "large.bin")


def _sealed(seal: Seal) -> bytes:
    chosen = (entry for entry in ENTRIES if entry.name in SEALED)
    return build(*(seal(entry, SECRET) for entry in chosen), Entry("plain.txt", b"plain"))


OPENED = {name: MEMBERS[name] for name in SEALED} | {"plain.txt": b"plain"}


def _small_world(password: bytes | None = None) -> World:
    world = World(policy=Policy(password=password))
    world.tune(small_member=65_536, copy_from=65_536, split_from=80_000, segment_bytes=20_000)
    world.tune(part_bytes=16_384, read_piece=10_000)
    return world


@pytest.mark.parametrize("options", [SUFFIX, TRUSTING])
def test_gzip_with_a_suffix(options: Options) -> None:
    """Every key ends in .gz and every object unpacks to its member, small and large."""
    world = _small_world()
    report = world.run(ARCHIVE, options, verdict=Verdict.COMPLETED)
    contents = world.contents()
    assert {key: gzip.decompress(body) for key, body in contents.items()} == {
        f"{name}.gz": content for name, content in MEMBERS.items()
    }
    assert report.bytes_out == sum(map(len, contents.values()))
    facts = world.out.objects["archive/small.txt.gz"].facts
    assert (facts.content_type, facts.content_encoding) == ("application/gzip", None)
    assert facts.metadata["zip-crc32"] == f"{zlib.crc32(SMALL):08x}"
    for name in ("small.txt", "large.txt"):  # between header and trailer: the archive's own stream
        body = contents[f"{name}.gz"]
        assert body[10:-8] == compress(DEFLATE, MEMBERS[name])
        assert body[:4] == b"\x1f\x8b\x08\x00"


def test_gzip_as_an_encoding() -> None:
    """With an encoding the keys and types stay and the objects say gzip."""
    world = _small_world()
    assert world.run(ARCHIVE, ENCODING).verdict is Verdict.COMPLETED
    for key, stored in world.out.objects.items():
        assert gzip.decompress(stored.body) == MEMBERS[key.removeprefix("archive/")]
        assert stored.facts.content_encoding == "gzip"
    assert world.out.objects["archive/small.txt"].facts.content_type == "text/plain"


@pytest.mark.parametrize("content", [SMALL, LARGE])
def test_wrong_crc_is_found_in_flight(content: bytes) -> None:
    """What does not inflate to the directory's CRC-32 is not written, unless that is trusted."""
    wrong = Entry("a", content, DEFLATE, local={"crc32": 1}, central={"crc32": 1})
    checking = _small_world()
    assert checking.run(build(wrong), SUFFIX).reasons == {"crc-mismatch": 1}
    assert checking.contents() == {}
    assert not checking.out.pending
    assert _small_world().run(build(wrong), TRUSTING).extracted == 1


@pytest.mark.parametrize(
    ("form", "rule"),
    [(GzipForm.SUFFIX, OnConflict.SKIP_UNCHANGED), (GzipForm.ENCODING, OnConflict.NEVER)],
)
def test_gzip_objects_are_known_again(form: GzipForm, rule: OnConflict) -> None:
    """By the file's length and the content's CRC-32; one that is broken where it is read."""
    world = _small_world()
    request = world.request(ARCHIVE, Options(as_gzip=form, on_conflict=rule))
    world.run_request(request)
    report = world.run_request(request)
    assert (report.unchanged, report.extracted) == (len(MEMBERS), 0)
    for broken in (False, True):
        for deep in (False, True):
            found = verify_objects(request, world.context, Effort(2, 10, deep=deep))
            assert found.equal == len(MEMBERS) - (broken and deep)
        stored = world.out.objects[f"archive/large.txt{'.gz' * (form is GzipForm.SUFFIX)}"]
        stored.body = stored.body[:20_000] + b"?" + stored.body[20_001:]


def test_a_folder_keeps_no_encoding() -> None:
    """Content-Encoding in a folder, and trust without gzip, are refused before anything is read."""
    source = _small_world().request(ARCHIVE).source
    folder = Location("file", "", "/out")
    with pytest.raises(UsageError, match="suffix"):
        check_request(Request(source, folder, ENCODING))
    with pytest.raises(UsageError, match="trust_crc"):
        check_request(Request(source, folder, Options(trust_crc=True)))


@sealed_each_way
@pytest.mark.parametrize("as_gzip", [None, GzipForm.SUFFIX])
def test_encrypted_members_open(seal: Seal, as_gzip: GzipForm | None) -> None:
    """With the password every member is written, in batches and in streams, and none is copied."""
    world = _small_world(SECRET)
    report = world.run(
        _sealed(seal),
        Options(password_ref="file:/secrets/zip", as_gzip=as_gzip),
        verdict=Verdict.COMPLETED,
    )
    contents = world.contents()
    if as_gzip:
        contents = {key[:-3]: gzip.decompress(body) for key, body in contents.items()}
    assert contents == OPENED
    assert report.requests.copy == 0
    if seal is seal_aes and not as_gzip:  # without a declared CRC-32: computed, or none, but not 0
        facts = {key: stored.facts.metadata for key, stored in world.out.objects.items()}
        assert facts["archive/small.txt"]["zip-crc32"] == f"{zlib.crc32(SMALL):08x}"
        assert "zip-crc32" not in facts["archive/large.bin"]


@sealed_each_way
@pytest.mark.parametrize(
    ("password", "reason"), [(None, "encrypted"), (b"wrong", "wrong-password")]
)
def test_encrypted_members_fail_without_the_right_password(
    seal: Seal, password: bytes | None, reason: str
) -> None:
    """Each encrypted member fails by name, the plain one is written, and no upload is left."""
    world = _small_world(password)
    report = world.run(_sealed(seal), verdict=Verdict.COMPLETED_WITH_ERRORS)
    assert report.reasons == {reason: 4}
    assert {failure.key for failure in report.failures} == {f"archive/{name}" for name in SEALED}
    assert world.contents() == {"plain.txt": b"plain"}
    assert not world.out.pending


def test_an_altered_member_is_never_visible() -> None:
    """An AE-2 member without its right authentication code is not written, streamed or not."""
    raw = bytearray(_sealed(seal_aes))
    for name in (b"small.txt", b"large.bin"):
        raw[raw.index(name) + 45] ^= 1  # behind name, extra field, salt and verifier
    world = _small_world(SECRET)
    report = world.run(bytes(raw))
    assert report.failed == 2
    assert set(report.reasons) <= {"aes-mac-mismatch", "corrupt-stream"}
    assert world.contents().keys() == OPENED.keys() - {"small.txt", "large.bin"}


@sealed_each_way
def test_encrypted_members_are_known_again(seal: Seal) -> None:
    """They verify, and are not written again, but for small ones without a declared CRC-32."""
    world = _small_world(SECRET)
    request = world.request(_sealed(seal), Options(on_conflict=OnConflict.SKIP_UNCHANGED))
    world.run_request(request)
    for deep in (False, True):
        found = verify_objects(request, world.context, Effort(2, 10, deep=deep))
        assert (found.verdict, found.equal) == (Comparison.EQUAL, 5)
    report = world.run_request(request)
    assert report.verdict is Verdict.COMPLETED
    assert report.unchanged == (3 if seal is seal_aes else 5)


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
        world = _small_world(password)
        report = world.run(_sealed(seal_zipcrypto), Options(password_ref="file:/secrets/zip"))
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
