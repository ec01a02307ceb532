"""Runs in S3 at the command line: how two servers are reached, and what is set on the objects."""

import json
import random
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from tests.support import memory_server, processes
from tests.support.servers import DENIED, Asked, Reply, looks, s3_error
from tests.support.zips import DEFLATE, STORED, Entry, build, seal_zipcrypto

CONTENT = b"content\n" * 100
LARGE = random.Random(1).randbytes(5 * 1024**2 + 1)  # copied by the store where it may
ARCHIVE = build(Entry("small.txt", CONTENT, DEFLATE), Entry("large.bin", LARGE, STORED))
SOURCE, TARGET = "s3://from/a.zip", "s3://out/to"
NAMES = {"to/a/small.txt", "to/a/large.bin"}
NOBODY = "http://127.0.0.1:9"
PROFILES = """
[profile reader]
aws_access_key_id = READER
aws_secret_access_key = secret
[profile writer]
aws_access_key_id = WRITER
aws_secret_access_key = secret
"""


def deny(*keys: str) -> Callable[[Asked], Reply | None]:
    """Return what a store answers that takes some keys from nobody."""
    return lambda asked: DENIED if asked.method == "PUT" and asked.key in keys else None


class Places:
    """Two servers: one with an archive in the bucket ``from``, and a bucket ``out`` on each."""

    def __init__(
        self,
        program: processes.Program,
        here: memory_server.MemoryS3,
        there: memory_server.MemoryS3,
    ) -> None:
        self.program = program
        self.here = here
        self.there = there
        self.one = ("--endpoint-url", here.url)
        self.two = (*self.one, "--dest-endpoint-url", there.url)
        self.near = here.buckets["out"]
        self.out = there.buckets["out"]
        self.add("a.zip", ARCHIVE)

    def add(self, name: str, archive: bytes) -> None:
        self.here.buckets["from"].add(name, archive)

    def extract(self, *words: str, source: str = SOURCE) -> processes.Ended:
        return self.program.extract(source, TARGET, *words)


@pytest.fixture
def places(program: processes.Program, s3: memory_server.MemoryS3) -> Iterator[Places]:
    (program.folder / "no-config").write_text(PROFILES)
    program.variables["S3UNZIP_TUNING"] = '{"small_member": 100000, "copy_from": 5242880}'
    with memory_server.MemoryS3("out") as there:
        yield Places(program, s3, there)


def signers(s3: memory_server.MemoryS3) -> set[str]:
    """Return the access keys that signed the requests of a server; empty: not signed."""
    return {
        text.partition("Credential=")[2].partition("/")[0]
        for text in (asked.headers.get("authorization", "") for asked in s3.asked)
    }


def test_a_public_archive_needs_no_credentials(places: Places) -> None:
    """Without any credentials ls, cat, test and run work; no request is signed."""
    program, anonymous = places.program, (*places.one, "--no-sign-request")
    program.variables |= {
        "AWS_ACCESS_KEY_ID": "",
        "AWS_SECRET_ACCESS_KEY": "",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    program.run("ls", SOURCE, *places.one).ends(6, "no AWS credentials", "--no-sign-request")
    assert "large.bin" in program.run("ls", SOURCE, *anonymous).out
    assert program.run("cat", SOURCE, "small.txt", *anonymous).out == CONTENT.decode()
    assert program.run("test", SOURCE, *anonymous, "-w", "1").code == 0
    assert program.extract(SOURCE, "to", *anonymous).code == 0
    assert (program.files("to/a")["large.bin"], signers(places.here)) == (LARGE, {""})


def test_a_public_archive_into_a_bucket(places: Places) -> None:
    """Only the destination's requests are signed; nothing is copied between the servers."""
    ways = (*places.two, "--no-sign-request")
    places.extract(*ways).ends(0, " GET, ")
    signing = (signers(places.here), signers(places.there))
    assert (set(places.out.objects), signing) == (NAMES, ({""}, {"test"}))
    places.there.asked.clear()
    places.program.run("verify", SOURCE, TARGET, *ways, "--dest-no-sign-request").ends(0)
    assert signers(places.there) == {""}


def test_one_server_and_an_anonymous_source_copy_nothing(places: Places) -> None:
    """The credentials of the destination may have no right to read the archive: it is streamed."""
    assert places.extract(*places.one, "--no-sign-request").code == 0
    assert places.near.objects.keys() == NAMES
    assert not [asked for asked in places.here.asked if "x-amz-copy-source" in asked.headers]


def test_the_requester_pays_for_the_source_only(places: Places) -> None:
    """Each request that reads the archive has the header, copies too, and no other has it."""
    places.extract(*places.one, "--request-payer").ends(0)
    assert {
        (
            asked.headers.get("x-amz-request-payer"),
            asked.bucket == "from",
            "x-amz-copy-source" in asked.headers,
        )
        for asked in places.here.asked
    } == {
        ("requester", True, False),
        ("requester", False, True),
        (None, False, False),
    }
    assert signers(places.here) == {"test"}


def test_another_profile_for_the_destination(places: Places) -> None:
    """One profile reads, the other writes; `resume` and `abort` remember both, and no secret."""
    program = places.program
    places.there.spoil = deny("to/a/small.txt")
    places.extract(*places.two, "--profile", "reader", "--dest-profile", "writer").ends(
        5, "access-denied"
    )
    assert signers(places.here) == {"READER"}
    program.variables["AWS_ENDPOINT_URL"] = NOBODY
    places.here.asked.clear()
    assert program.run("abort", "latest").code == 0
    assert not places.here.asked
    places.there.spoil = deny()
    program.run("resume", "latest", "-w", "1").ends(0)
    assert places.out.objects.keys() == NAMES
    assert (signers(places.here), signers(places.there)) == ({"READER"}, {"WRITER"})
    assert program.records_with(b"secret") == []


def test_typed_options_replace_remembered_ones(places: Places) -> None:
    """Of options that exclude each other, too; a server that is not there is told at once."""
    program = places.program
    places.there.spoil = deny("to/a/small.txt")
    assert places.extract(*places.two, "--no-sign-request", "-m", "small.txt").code == 5
    for payer, expected in (((), {""}), (("--request-payer",), {"test"})):
        places.here.asked.clear()
        assert program.run("resume", "latest", *payer, "-w", "1").code == 5
        assert signers(places.here) == expected
    program.run("resume", "latest", "--dest-endpoint-url", NOBODY, "-w", "1").ends(
        6,
        f"s3://out: cannot reach {NOBODY}: connection refused",
        "check --dest-endpoint-url, --region and the network",
    )
    program.run("resume", "latest", "--dest-endpoint-url", places.here.url, "-w", "1").ends(0)
    assert "to/a/small.txt" in places.near.objects


def test_several_archives_are_remembered_one_by_one(places: Places) -> None:
    """Each run of a batch can be continued without an option, archives inside it too.

    A nested archive comes from the destination's server; its members have its properties.
    """
    places.add("b.zip", build(Entry("in.zip", build(Entry("inner.txt", CONTENT, DEFLATE)))))
    places.there.spoil = deny("to/a/small.txt", "to/b/in/inner.txt")
    words = (*places.two, "--no-sign-request", "--nested", "1", "--tag", "a=1")
    assert places.program.extract(SOURCE, "s3://from/b.zip", TARGET, *words).code != 0
    assert signers(places.there) == {"test"}
    places.there.spoil = deny()
    failed = [
        run["run"] for run in places.program.run("runs", "--json").lines if run["state"] == "FAILED"
    ]
    assert len(failed) == 2
    for run in failed:
        places.program.run("resume", run, "-w", "1").ends(0)
    written = places.out.objects["to/b/in/inner.txt"]
    assert (written.body, written.facts.tags) == (CONTENT, {"a": "1"})


def test_a_key_that_looks_like_a_glob_in_a_bucket_that_nobody_may_list(places: Places) -> None:
    """The archive is read, and a glob is denied."""
    places.add("a[1].zip", ARCHIVE)
    places.here.spoil = lambda asked: DENIED if asked.method == "GET" and not asked.key else None
    places.extract(*places.one, "--no-sign-request", source="s3://from/a[1].zip").ends(0)
    places.extract(*places.one, "--no-sign-request", source="s3://from/a[2].zip").ends(
        6, "s3:ListBucket may be missing"
    )


@pytest.mark.parametrize("name", ["in/invoice [2024].zip", "a*.zip", "what?.zip"])
def test_a_key_that_looks_like_a_glob(places: Places, name: str) -> None:
    """The archive of that name is meant, alone or among others; else it is a glob."""
    places.add("in/invoice 2.zip", ARCHIVE)
    places.add("in/invoice 4.zip", ARCHIVE)
    places.add(name, build(Entry("own.txt", CONTENT)))
    places.extract(*places.one, "--delete-extra", "1", source=f"s3://from/{name}").ends(0)
    stem = name.rpartition("/")[2].removesuffix(".zip")
    assert places.near.objects.keys() == {f"to/{stem}/own.txt"}
    places.near.objects.clear()
    places.program.extract(
        f"s3://from/{name}", "s3://from/in/invoice [24].zip", TARGET, *places.one
    ).ends(0)
    assert {key.split("/")[1] for key in places.near.objects} == {stem, "invoice 2", "invoice 4"}


@pytest.mark.parametrize(
    ("order", "code", "said"),
    [
        pytest.param(
            lambda key: key.split("/"),
            6,
            "verify again without --objects (in Python, without `each`)",
            id="gateways list by folder",
        ),
        pytest.param(lambda key: key[::-1], 1, "", id="the first page is in no order"),
    ],
)
def test_a_store_that_lists_keys_in_another_order(
    places: Places,
    monkeypatch: pytest.MonkeyPatch,
    order: Callable[[str], Any],
    code: int,
    said: str,
) -> None:
    """Archives are found, members are kept, what is extra goes, and verify compares all.

    Results of earlier pages that were given out are not given again.
    """
    names = [f"{folder}/{n:03}" for folder in ("a-b", "a") for n in range(20)]
    places.add("in/a.zip", build(*(Entry(name, b"1") for name in names)))
    places.here.order = order
    words = ("s3://from/in/", "s3://out/to", *places.one, "-w", "1")
    places.program.extract(*words).ends(0)
    again = ("s3://from/in/a.zip", *words[1:], "--on-conflict", "skip-unchanged")
    places.near.add("to/a/old", b"extra")
    assert "40 unchanged" in places.program.extract(*again, "--dry-run").err
    places.program.extract(*again, "--delete-extra", "1").ends(0, "40 unchanged")
    assert places.near.objects.keys() == {f"to/a/{name}" for name in names}
    verify = ("verify", *again[:2], *places.one)
    places.program.run(*verify, "--objects", "objects.jsonl").ends(0)
    assert len(places.program.files()["objects.jsonl"].splitlines()) == len(names)
    places.near.delete([f"to/a/{names[0]}"])
    places.near.add("to/a/new", b"extra")
    places.program.run(*verify).ends(1).prints("39 equal, 1 missing, 1 extra")
    monkeypatch.setattr(memory_server, "PAGE", 15)
    places.program.run(*verify).ends(1).prints("39 equal, 1 missing, 1 extra")
    places.program.run(*verify, "--objects", "objects.jsonl").ends(code, said)


@pytest.mark.parametrize(
    ("header", "words", "option"),
    [
        ("x-amz-tagging", "--tag team=data", "--tag"),
        ("x-amz-acl", "--acl private", "--acl"),
        ("x-amz-storage-class", "--storage-class STANDARD_IA", "--storage-class"),
        ("if-none-match", "--on-conflict never", "--on-conflict never"),
    ],
)
def test_an_unimplemented_header_ends_a_run(
    places: Places, header: str, words: str, option: str
) -> None:
    """The run ends after few requests, and the message names the option to leave out."""
    places.there.spoil = lambda asked: (
        s3_error(501, "NotImplemented") if header in asked.headers else None
    )
    places.add("a.zip", build(*(Entry(f"{n:03}", CONTENT) for n in range(300))))
    places.extract(*places.two, *words.split()).ends(
        5,
        "FAILED",
        f"does not implement the request with {option}: leave it out",
        "not-implemented",
    ).hides("s3unzip resume", "retrying")  # it would have the same options
    assert sum(header in asked.headers for asked in places.there.asked) <= 64  # of 300 members


def test_an_endpoint_with_a_password_is_not_kept(places: Places) -> None:
    """The records of a run hold no credentials."""
    places.extract(
        *places.one, "--dest-endpoint-url", places.there.url.replace("://", "://user:hunter2@")
    )
    assert places.program.records_with(b"hunter2") == []


def test_a_plan_knows_that_nothing_can_be_copied(places: Places) -> None:
    """A forecast takes the destination's options: other credentials mean no copies."""
    for ways, is_copied in ((places.one, True), (places.two, False)):
        assert (
            '"copy"' in places.program.run("plan", SOURCE, TARGET, *ways, "--json").ends(0).out
        ) is is_copied


def test_the_next_command_reaches_the_same_servers(places: Places) -> None:
    """A run to be started again is reached as before: on the screen, in `show` and on the page."""
    program = places.program
    places.add("b.zip", build(seal_zipcrypto(Entry("secret.txt", CONTENT), b"open sesame")))
    program.variables["AWS_ENDPOINT_URL"] = places.there.url  # but the archive is not there
    ways = (
        *(*places.one, "--region", "eu-west-1", "--request-payer"),
        *("--dest-endpoint-url", places.there.url, "--dest-profile", "writer"),
    )
    ended = places.extract(*ways, source="s3://from/b.zip").ends(1)
    command = (
        f"s3unzip run s3://from/b.zip s3://out/to/ --on-conflict skip-unchanged {' '.join(ways)} "
        "--password-file FILE"
    )
    assert f"next: {command}\n" in ended.err
    assert f"next: {command}\n" in program.run("show").out
    (page,) = program.home.rglob("report.html")
    assert command in page.read_text()
    (program.folder / "FILE").write_bytes(b"open sesame")
    program.run(*command.split()[1:], "-w", "1").ends(0)


def test_a_destination_that_dies(places: Places) -> None:
    """One line says so; the run ends FAILED when the budget is spent, and `resume` completes it."""
    data, refused = random.Random(1), list[Asked]()

    def die(asked: Asked) -> None:
        if len(places.out.objects) >= 40:
            refused.append(asked)
            raise ConnectionAbortedError

    places.add("a.zip", build(*(Entry(f"{n:03}", data.randbytes(20_000)) for n in range(400))))
    places.program.variables["S3UNZIP_TUNING"] = json.dumps(
        {"retry_seconds": 6, "batch_bytes": 1_000_000, "min_worker_seconds": 0}
    )
    places.there.spoil = die
    ended = places.extract(*places.two, "-w", "2").ends(5, "FAILED", "service-fault")
    (line,) = (line for line in ended.err.splitlines() if line.startswith("no answer from"))
    assert places.there.url in line.partition(", retrying for ")[0] != line
    assert len(refused) <= 200  # two workers, one budget, few requests
    assert 40 <= len(places.out.objects) < 400  # some PUTs were on their way
    places.there.spoil = deny()
    places.program.run("resume", "latest", "-w", "1").ends(0)
    assert len(places.out.objects) == 400


def test_a_store_that_says_nothing(places: Places) -> None:
    """A line names it, and the options that reach it, long before a call times out."""

    def hang(asked: Asked) -> None:
        # A server answers when the line is there.
        if asked.key == "to/a/hung" or asked.headers.get("range", "").startswith("bytes=0-"):
            assert any(b"no answer" in sys.stderr.buffer.getvalue() for _ in looks())  # type: ignore[union-attr]  # a BytesIO

    places.add("a.zip", build(Entry("a", b"1"), Entry("hung", b"2")))
    places.program.variables["S3UNZIP_TUNING"] = json.dumps({"retry_seconds": 6})
    places.there.spoil = hang
    ended = places.extract(*places.two).ends(0)
    (line,) = (line for line in ended.err.splitlines() if line.startswith("no answer from"))
    assert line.startswith("no answer from s3://out/to/ (--endpoint-url")
    assert places.there.url in line
    places.here.spoil = hang
    web = f"{places.here.url}/from/a.zip"  # is reached without any option
    places.program.extract(web, "out").ends(0, f"no answer from {web} for several seconds")


def test_a_refused_upload_is_dropped(places: Places) -> None:
    """No part stays where the store refuses the object, or a folder has the name of the file."""
    places.there.spoil = lambda asked: (
        s3_error(400, "EntityTooSmall")
        if asked.method == "POST" and "uploadId" in asked.query
        else None
    )
    places.extract(*places.two).ends(1, "store-refused")
    assert list(places.out.uploads("")) == []
    (places.program.folder / "to/a/large.bin").mkdir(parents=True)
    places.program.extract(SOURCE, "to", *places.one).ends(1, "store-refused")
    assert set(places.program.files("to")) == {"a/small.txt"}


def test_every_object_has_its_properties(places: Places) -> None:
    """A PUT, a copy, a multipart upload and the marker are all written so; `skip-unchanged` not."""
    entries = (Entry("a.csv", b"1,2\n" * 100, DEFLATE), Entry("page.html", b"<p>"))
    places.add(
        "a.zip",
        build(*entries, Entry("copied.bin", LARGE, STORED), Entry("streamed.csv", LARGE, DEFLATE)),
    )
    options = (
        *("--storage-class", "STANDARD_IA", "--cache-control", "max-age=60"),
        *("--tag", "team=data", "--tag", "a=b=c", "--metadata", "owner=me"),
        *("--content-type", "a.csv=text/csv; charset=utf-8", "--content-type", "*.csv=x/y"),
        *("--acl", "bucket-owner-full-control"),
    )
    places.extract(*places.one, *options, "--marker").ends(0)
    assert any("x-amz-copy-source" in asked.headers for asked in places.here.asked)
    objects = {key.removeprefix("to/a/"): one.facts for key, one in places.near.objects.items()}
    assert len(objects) == 5
    for facts in objects.values():
        assert facts == replace(
            facts,
            storage_class="STANDARD_IA",
            cache_control="max-age=60",
            tags={"a": "b=c", "team": "data"},
            acl="bucket-owner-full-control",
            metadata={**facts.metadata, "owner": "me"},
        )
    del objects["_SUCCESS"]
    assert {name: facts.content_type for name, facts in objects.items()} == {
        "a.csv": "text/csv; charset=utf-8",
        "streamed.csv": "x/y",
        "page.html": "text/html",
        "copied.bin": "application/octet-stream",
    }
    assert objects["page.html"].metadata["zip-crc32"]
    # The marker is not extra.
    places.program.run("verify", SOURCE, TARGET, *places.one).prints("4 members: 4 equal\n")
    kept = places.extract(*places.one, "--on-conflict", "skip-unchanged", "--tag", "a=1", "--json")
    assert kept.lines[0]["unchanged"] == 4
    assert places.near.objects["to/a/a.csv"].facts == objects["a.csv"]


def test_properties_are_part_of_the_run(places: Places) -> None:
    """Other properties are another run; the report repeats them; their order says nothing."""
    reports = [
        places.extract(*places.one, "-m", "small.txt", *tags, "--json").lines[0]
        for tags in (("--tag", "a=1", "--tag", "b=2"), ("--tag", "b=2", "--tag", "a=1"), ())
    ]
    first, same, other = (report["run"] for report in reports)
    assert first == same != other
    assert reports[0]["options"]["objects"] == {"tags": {"a": "1", "b": "2"}}
