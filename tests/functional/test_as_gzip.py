"""Runs that keep members compressed: every object is a gzip file, and nothing was compressed."""

import gzip
import random
import zlib

import pytest

from s3unzip.errors import UsageError
from s3unzip.model import GzipForm, Location, OnConflict, Options, Request, Verdict
from s3unzip.planning.plan import check_options
from s3unzip.verification import Comparison, Effort, verify_objects
from s3unzip.zip import Policy
from tests.encrypting import seal_aes, seal_zipcrypto
from tests.runs import World
from tests.zips import DEFLATE, METHODS, STORED, Entry, build, compress

SUFFIX = Options(as_gzip=GzipForm.SUFFIX)
ENCODING = Options(as_gzip=GzipForm.ENCODING)
TRUSTING = Options(as_gzip=GzipForm.SUFFIX, trust_crc=True)
LARGE = random.Random(3).randbytes(150_000) + b"text " * 9_000
SMALL = b"hello " * 30


def gzipping() -> World:
    """Return a world on which 64 KiB are a large member."""
    world = World()
    world.tune(small_member=65_536, copy_from=65_536, split_from=80_000, segment_bytes=20_000)
    world.tune(part_bytes=16_384, read_piece=10_000)
    return world


MEMBERS = {
    "small.txt": SMALL, "empty.txt": b"", "kept/stored.bin": b"x" * 100, "large.txt": LARGE,
    "large.bin": LARGE, "edge.bin": b"e" * 65_535, "beyond.bin": b"b" * 65_536,
}  # fmt: skip
ARCHIVE = build(
    Entry("small.txt", SMALL, DEFLATE),
    Entry("empty.txt", b"", STORED),
    Entry("kept/stored.bin", b"x" * 100, STORED),
    Entry("large.txt", LARGE, DEFLATE, descriptor="signed32"),
    Entry("large.bin", LARGE, STORED),
    Entry("edge.bin", b"e" * 65_535, STORED),
    Entry("beyond.bin", b"b" * 65_536, STORED),
)


@pytest.mark.parametrize("options", [SUFFIX, TRUSTING])
def test_suffix(options: Options) -> None:
    """Every key ends in .gz and every object unpacks to its member, small and large."""
    world = gzipping()
    report = world.run(ARCHIVE, options)
    assert report.verdict is Verdict.COMPLETED, report.failures
    contents = world.contents()
    assert {key: gzip.decompress(body) for key, body in contents.items()} == {
        f"{name}.gz": content for name, content in MEMBERS.items()
    }
    assert report.bytes_out == sum(map(len, contents.values()))
    facts = world.out.objects["archive/small.txt.gz"].facts
    assert (facts.content_type, facts.content_encoding) == ("application/gzip", None)
    assert facts.metadata["zip-crc32"] == f"{zlib.crc32(SMALL):08x}"


def test_encoding() -> None:
    """With an encoding the keys and types stay and the objects say gzip."""
    world = gzipping()
    assert world.run(ARCHIVE, ENCODING).verdict is Verdict.COMPLETED
    for key, stored in world.out.objects.items():
        assert gzip.decompress(stored.body) == MEMBERS[key.removeprefix("archive/")]
        assert stored.facts.content_encoding == "gzip"
    assert world.out.objects["archive/small.txt"].facts.content_type == "text/plain"


@pytest.mark.parametrize("content", [SMALL, LARGE])
def test_the_stream_is_the_archives_own(content: bytes) -> None:
    """Between header and trailer is the member's deflate stream, byte for byte."""
    world = gzipping()
    world.run(build(Entry("a", content, DEFLATE)), SUFFIX)
    body = world.contents()["a.gz"]
    assert body[10:-8] == compress(DEFLATE, content)
    assert body[:4] == b"\x1f\x8b\x08\x00"


@pytest.mark.parametrize("method", METHODS)
def test_other_methods_become_stored_blocks(method: int) -> None:
    """A member of any method is gzip too, of a length known before it is read."""
    world = gzipping()
    options = Options(as_gzip=GzipForm.SUFFIX, on_conflict=OnConflict.SKIP_UNCHANGED)
    request = world.request(build(Entry("a", LARGE, method)), options)
    assert world.run_request(request).extracted == 1
    assert gzip.decompress(world.contents()["a.gz"]) == LARGE
    assert world.run_request(request).unchanged == 1


@pytest.mark.parametrize("seal", [seal_zipcrypto, seal_aes])
def test_encrypted(seal: object) -> None:
    """An encrypted member is opened and written as gzip."""
    assert callable(seal)
    world = gzipping()
    world.policy = Policy(password=b"pw")
    sealed = [seal(Entry("s", SMALL, DEFLATE), b"pw"), seal(Entry("l", LARGE, STORED), b"pw")]
    assert world.run(build(*sealed), SUFFIX).verdict is Verdict.COMPLETED
    contents = world.contents()
    assert gzip.decompress(contents["s.gz"]) == SMALL
    assert gzip.decompress(contents["l.gz"]) == LARGE


@pytest.mark.parametrize("content", [SMALL, LARGE])
def test_wrong_crc_is_found_in_flight(content: bytes) -> None:
    """What does not inflate to the directory's CRC-32 is not written, unless that is trusted."""
    wrong = Entry("a", content, DEFLATE, local={"crc32": 1}, central={"crc32": 1})
    checking = gzipping()
    report = checking.run(build(wrong), SUFFIX)
    assert report.reasons == {"crc-mismatch": 1}
    assert checking.contents() == {}
    assert not checking.out.pending
    trusting = gzipping()
    assert trusting.run(build(wrong), TRUSTING).extracted == 1


def test_trailing_bytes_are_no_gzip() -> None:
    """Bytes after the stream fail the member even where a lenient run ignores them."""
    world = gzipping()
    world.policy = Policy(lenient=True)
    data = compress(DEFLATE, SMALL) + b"junk"
    report = world.run(build(Entry("a", SMALL, DEFLATE, data=data)), SUFFIX)
    assert report.reasons == {"compressed-trailing-bytes": 1}


@pytest.mark.parametrize("options", [SUFFIX, ENCODING])
@pytest.mark.parametrize("rule", [OnConflict.SKIP_UNCHANGED, OnConflict.NEVER])
def test_unchanged(options: Options, rule: OnConflict) -> None:
    """A second run knows its objects by the gzip file's length and the content's CRC-32."""
    world = gzipping()
    request = world.request(ARCHIVE, Options(as_gzip=options.as_gzip, on_conflict=rule))
    world.run_request(request)
    report = world.run_request(request)
    assert (report.unchanged, report.extracted) == (len(MEMBERS), 0)


@pytest.mark.parametrize("deep", [False, True])
def test_verify(*, deep: bool) -> None:
    """Verify compares gzip objects by length and content, and sees one that is broken."""
    world = gzipping()
    request = world.request(ARCHIVE, SUFFIX)
    world.run_request(request)
    found = verify_objects(request, world.context, Effort(2, 10, deep=deep))
    assert (found.verdict, found.equal) == (Comparison.EQUAL, len(MEMBERS))
    stored = world.out.objects["archive/large.txt.gz"]
    stored.body = stored.body[:20_000] + b"?" + stored.body[20_001:]
    found = verify_objects(request, world.context, Effort(2, 10, deep=deep))
    assert found.equal == len(MEMBERS) - deep


def test_a_folder_keeps_no_encoding() -> None:
    """Content-Encoding in a folder, and trust without gzip, are refused before anything is read."""
    world = gzipping()
    source = world.request(ARCHIVE).source
    folder = Location("file", "", "/out")
    with pytest.raises(UsageError, match="suffix"):
        check_options(Request(source, folder, ENCODING))
    with pytest.raises(UsageError, match="trust_crc"):
        check_options(Request(source, folder, Options(trust_crc=True)))
