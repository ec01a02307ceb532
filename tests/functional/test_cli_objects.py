"""Properties of the objects that a run writes, at the real command line."""

import json
import random
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from s3unzip.stores.ports import ObjectFacts
from tests.memory_server import MemoryS3, run_memory_s3
from tests.processes import Ended, Program
from tests.zips import DEFLATE, STORED, Entry, build

NOISE = random.Random(1)
ENTRIES = (
    Entry("data/a.csv", b"1,2\n" * 100, DEFLATE),
    Entry("data/copied.bin", NOISE.randbytes(9 * 1024**2), STORED),
    Entry("data/streamed.csv", NOISE.randbytes(9 * 1024**2), DEFLATE),
    Entry("page.html", b"<p>"),
)
OPTIONS = (
    *("--storage-class", "STANDARD_IA", "--cache-control", "max-age=60"),
    *("--tag", "team=data", "--tag", "a=b=c", "--metadata", "owner=me"),
    *("--content-type", "data/*.csv=text/csv; charset=utf-8", "--content-type", "*.csv=x/y"),
)


@cache
def make_archive() -> bytes:
    """Return the archive, which takes longer to make than to extract."""
    return build(*ENTRIES)


class Bucket:
    """A server with the archive, and a bucket to write to."""

    def __init__(self, program: Program, url: str, s3: MemoryS3) -> None:
        self.program, self.s3 = program, s3
        self.out = s3.buckets["out"]
        self._url = url

    def run(self, *words: str, command: str = "run") -> Ended:
        """Extract the archive with `words`."""
        places = ("s3://from/a.zip", "s3://out/to", "--endpoint-url", self._url)
        workers = () if command == "verify" else ("-w", "1")
        return self.program.run(command, *places, *workers, *words)


@pytest.fixture
def bucket(tmp_path: Path) -> Iterator[Bucket]:
    """An empty bucket."""
    s3 = MemoryS3()
    (tmp_path / "a.zip").write_bytes(make_archive())
    s3.create_bucket("out")
    archive = s3.create_bucket("from")
    with run_memory_s3(s3) as url:
        facts = ObjectFacts("application/zip", {})
        archive.put("a.zip", make_archive(), facts, if_absent=False)
        yield Bucket(Program(tmp_path), url, s3)


def test_every_object_has_its_properties(bucket: Bucket) -> None:
    """A PUT, a copy, a multipart upload and the marker are all written so."""
    ended = bucket.run(*OPTIONS, "--marker")
    assert ended.code == 0, ended.err
    objects = bucket.out.objects
    assert any("x-amz-copy-source" in asked.headers for asked in bucket.s3.asked)
    assert len(objects) == len(ENTRIES) + 1
    for key, stored in objects.items():
        facts = stored.facts
        assert facts.storage_class == "STANDARD_IA", key
        assert facts.cache_control == "max-age=60"
        assert facts.tags == {"a": "b=c", "team": "data"}
        assert facts.metadata["owner"] == "me"
    types = {key.removeprefix("to/a/"): one.facts.content_type for key, one in objects.items()}
    assert types["data/a.csv"] == types["data/streamed.csv"] == "text/csv; charset=utf-8"
    assert types["page.html"] == "text/html"
    assert types["data/copied.bin"] == "application/octet-stream"
    assert objects["to/a/page.html"].facts.metadata["zip-crc32"]
    assert bucket.run(command="verify").code == 1  # the marker is extra
    assert "1 extra" in bucket.run(command="verify").out


def test_properties_are_part_of_the_run(bucket: Bucket) -> None:
    """Other properties are another run; the report repeats them; their order says nothing."""
    first = json.loads(bucket.run("--tag", "a=1", "--tag", "b=2", "--json").out)
    same = json.loads(bucket.run("--tag", "b=2", "--tag", "a=1", "--json").out)
    other = json.loads(bucket.run("--tag", "a=1", "--json").out)
    assert first["run"] == same["run"] != other["run"]
    assert first["options"]["objects"] == {"tags": {"a": "1", "b": "2"}}


def test_skip_unchanged_compares_contents_only(bucket: Bucket) -> None:
    """An object with the member's content stays as it is; an overwrite sets the properties."""
    assert bucket.run().code == 0
    kept = bucket.run("--on-conflict", "skip-unchanged", "--tag", "a=1", "--json")
    assert json.loads(kept.out)["unchanged"] == len(ENTRIES)
    assert all(one.facts.tags is None for one in bucket.out.objects.values())
    assert bucket.run("--tag", "a=1").code == 0
    assert all(one.facts.tags == {"a": "1"} for one in bucket.out.objects.values())


def test_a_dry_run_refuses_what_a_run_refuses(bucket: Bucket) -> None:
    """A folder keeps none of it: nothing is written, and it is told before."""
    for words in ((), ("--dry-run",)):
        ended = bucket.program.run("run", "a.zip", "out", "--tag", "a=1", *words)
        assert ended.code == 2
        assert "a folder keeps no storage class, tags, metadata" in ended.err
        assert not (bucket.program.folder / "out").exists()


def test_archives_inside_get_the_same_properties(bucket: Bucket) -> None:
    """The members of a nested archive are written as those of the outer one."""
    outer = build(Entry("in.zip", build(Entry("x.csv", b"1"))))
    facts = ObjectFacts("application/zip", {})
    bucket.s3.buckets["from"].put("a.zip", outer, facts, if_absent=False)
    assert bucket.run("--nested", "1", "--tag", "a=1").code == 0
    assert bucket.out.objects["to/a/in/x.csv"].facts.tags == {"a": "1"}
    refused = bucket.run("--nested", "1", "--storage-class", "GLACIER")
    assert refused.code == 2
    assert "GLACIER must be restored before it can be read" in refused.err
