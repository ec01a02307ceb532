"""Who says that an object is right, and what each proof finds."""

import json
import random
import zipfile
from dataclasses import replace
from pathlib import Path

import boto3
import pytest

from s3unzip.cli.main import main
from s3unzip.model import GzipForm, Location, Options, Report, Request
from s3unzip.runs.records import RunRecords
from s3unzip.stores.ports import ObjectFacts
from s3unzip.verification import (
    ComparedObject,
    Effort,
    Kind,
    Proof,
    Verification,
    WrittenObjects,
    read_written,
    verify_objects,
)
from tests.functional.large.encoders import log_lines
from tests.memory import MemoryBucket
from tests.runs import TINY, World
from tests.servers import VERSITY, find_versitygw, run_versitygw
from tests.zips import Entry, build

MEMBERS = [Entry(f"d/{n:02}.txt", b"member %02d" % n) for n in range(20)]


class Extracted:
    """An archive that was extracted over stores in memory."""

    def __init__(self, options: Options | None = None) -> None:
        self.world = World()
        self.request = self.world.request(build(*MEMBERS), options)
        self.report = self.world.run_request(self.request)

    @property
    def out(self) -> MemoryBucket:
        """The destination."""
        return self.world.out

    def written(self, *reports: Report) -> WrittenObjects:
        """Return what the runs recorded."""
        stores = self.world.buckets
        runs = [RunRecords.open(stores, one.run) for one in reports or (self.report,)]
        return read_written(runs, self.request.destination)

    def verify(
        self, written: WrittenObjects | None = None, *, deep: bool = False
    ) -> tuple[Verification, dict[str, ComparedObject]]:
        """Verify; return what was found, and what each object was found to be."""
        lines: list[ComparedObject] = []
        found = verify_objects(
            self.request, self.world.context, Effort(4, deep=deep), written, lines.append
        )
        return found, {line.key: line for line in lines}

    def change(self, number: int, body: bytes | None = None, etag: str | None = None) -> str:
        """Change an object past the pipeline, its metadata kept; return its key."""
        key = f"archive/{MEMBERS[number].name!s}"
        stored = self.out.objects[key]
        if body is not None:
            self.out.put(key, body, stored.facts, if_absent=False)
            stored = self.out.objects[key]
        self.out.objects[key] = replace(stored, etag=etag or stored.etag)
        return key


def test_with_the_record_a_listing_proves_all() -> None:
    """Each object is named with its proof, the store, without a HEAD."""
    case = Extracted()
    found, each = case.verify(case.written())
    assert (found.equal, found.proofs) == (20, {"record": 20})
    assert (found.requests.list, found.requests.head, found.requests.get) == (1, 0, 1)
    assert found.records == (case.report.run,)
    assert set(each.values()) == {ComparedObject(key, Proof.RECORD) for key in case.out.objects}


def test_forged_metadata_is_found_with_the_record() -> None:
    """Other bytes of the same size under the right zip-crc32 pass without the record only."""
    case = Extracted()
    key = case.change(3, b"forged 03")
    found, each = case.verify(case.written())
    assert found.counts == {"crc": 1}
    assert found.proofs == {"record": 19}
    assert each[key].difference is Kind.CRC
    assert (found.requests.head, found.bytes_read) == (0, 9)
    without, told = case.verify()
    assert (without.counts, without.proofs) == ({}, {"metadata": 20})
    assert told[key].proof is Proof.METADATA
    assert case.verify(deep=True)[0].counts == {"crc": 1}


def test_what_was_replaced_by_the_same_bytes_is_read() -> None:
    """A copy in place can change the ETag: the bytes decide, not the record."""
    case = Extracted()
    key = case.change(5, etag='"another-1"')
    found, each = case.verify(case.written())
    assert (found.counts, found.proofs) == ({}, {"record": 19, "read": 1})
    assert each[key].proof is Proof.READ


def test_what_no_run_wrote_is_asked_for() -> None:
    """An object that only the metadata speaks of has that proof; one without it differs."""
    case = Extracted()
    found, each = case.verify(WrittenObjects())
    assert (found.proofs, found.requests.head) == ({"metadata": 20}, 20)
    key = "archive/d/07.txt"
    case.out.put(key, MEMBERS[7].content, ObjectFacts("text/plain", {}), if_absent=False)
    found, each = case.verify()
    assert each[key].difference is Kind.NO_CRC


def test_the_record_of_another_version_proves_nothing() -> None:
    """Where the archive's member has other bytes now, the old run's record is none."""
    case = Extracted()
    old = case.written()
    changed = [Entry(one.name, one.content.upper()) for one in MEMBERS]
    case.request = case.world.request(build(*changed))
    found, _ = case.verify(old)
    assert (found.equal, found.counts) == (0, {"crc": 20})


def test_the_later_run_counts() -> None:
    """Of two runs to the same keys the record of the last is compared."""
    case = Extracted()
    first = case.report
    case.change(1, b"forged 01")
    records = [RunRecords.open(case.world.buckets, first.run)]
    again = Request(case.request.source, case.request.destination, Options(exclude=("x",)))
    second = case.world.run_request(again)
    records.append(RunRecords.open(case.world.buckets, second.run))
    found, _ = case.verify(read_written(records, case.request.destination))
    assert found.proofs == {"record": 20}
    assert found.records == (first.run, second.run)


def test_runs_to_other_buckets_and_broken_records_are_left_out() -> None:
    """What cannot speak of the destination is not read."""
    case = Extracted()
    stores = case.world.buckets
    records, empty = (RunRecords.open(stores, run) for run in (case.report.run, "never-begun"))
    elsewhere = Location("s3", "elsewhere", "")
    assert len(read_written([records], elsewhere)) == 0
    assert len(read_written([records], Location("file", "", "/out/"))) == 0
    assert len(read_written([empty, records], case.request.destination)) == 20


def test_every_kind_of_task_records_the_etag() -> None:
    """Streamed, copied and split members have one too, also after they were settled again."""
    text = log_lines(300_000)
    noise = random.Random(1).randbytes(20_000)
    world = World(TINY)
    archive = build(
        Entry("split.log", text, method=zipfile.ZIP_DEFLATED),
        Entry("stream.txt", text[:20_000], method=zipfile.ZIP_DEFLATED),
        Entry("copied.bin", noise),
        Entry("small", b"small"),
    )
    request = world.request(archive)
    report = world.run_request(request)
    world.assert_clean(report)
    for _ in range(2):
        kinds = {task.kind for task in world.tasks(report)}
        assert {"batch", "copy", "scan", "stream"} <= kinds
        written = read_written([world.records(report.run)], request.destination)
        found = verify_objects(request, world.context, Effort(2), written)
        assert (found.proofs, found.requests.head) == ({"record": 4}, 0)
        assert world.resume(report.run).extracted == 4


def test_gzip_objects_are_recorded_by_their_own_length() -> None:
    """The record of a member that was kept as gzip is of the object, the CRC-32 of the content."""
    case = Extracted(Options(as_gzip=GzipForm.SUFFIX))
    assert case.verify(case.written())[0].proofs == {"record": 20}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """A real S3 server, and a home of runs."""
    if find_versitygw() is None:
        pytest.skip("VersityGW is not installed: go install github.com/versity/versitygw/...")
    for name, value in {**VERSITY, "AWS_DEFAULT_REGION": "us-east-1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("S3UNZIP_HOME", str(tmp_path / "home"))
    return str(tmp_path)


def code_of(*arguments: str) -> object:
    """Run a command; return its exit code."""
    with pytest.raises(SystemExit) as end:
        main(arguments)
    return end.value.code


def test_the_command_line_over_a_real_server(
    server: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """`run` records, `verify` finds the record, names its proof, and finds a forgery.

    Without the record it is found only where S3 keeps a CRC-32 and the metadata has none.
    """
    archive, lines = Path(server, "a.zip"), Path(server, "objects.jsonl")
    archive.write_bytes(build(*MEMBERS))
    with run_versitygw() as (url, _):
        places = [str(archive), "s3://bucket/", "--endpoint-url", url]
        client = boto3.client("s3", endpoint_url=url)
        client.create_bucket(Bucket="bucket")
        assert code_of("run", *places, "--quiet") == 0
        assert code_of("verify", *places, "--objects", str(lines)) == 0
        said = capsys.readouterr().out
        assert "20 by the store: the ETag is the one that it gave a run" in said
        assert ", 1 LIST, 0 HEAD, 1 GET" in said
        assert lines.read_bytes().count(b'"proof":"record"') == 20
        old = client.head_object(Bucket="bucket", Key="a/d/04.txt")["Metadata"]
        for algorithm, metadata, found_without in (("SHA256", old, 0), ("CRC32", {}, 1)):
            client.put_object(
                Bucket="bucket",
                Key="a/d/04.txt",
                Body=b"forged 04",
                Metadata=metadata,
                ChecksumAlgorithm=algorithm,  # type: ignore[arg-type]  # one of boto3's literals
            )
            assert code_of("verify", *places, "--no-records") == found_without
            assert code_of("verify", *places) == 1
            assert "crc      a/d/04.txt" in capsys.readouterr().out
        assert code_of("run", *places, "--on-conflict", "skip-unchanged", "--json") == 0
        report = json.loads(capsys.readouterr().out)
        assert (report["unchanged"], report["extracted"]) == (19, 1)
        assert code_of("verify", *places) == 0
        assert "20 by the store" in capsys.readouterr().out
