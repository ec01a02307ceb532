"""Source and destination that are reached differently, at the real command line."""

import json
import random
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from s3unzip.stores.ports import ObjectFacts
from tests.encrypting import seal_zipcrypto
from tests.memory_server import Asked, MemoryS3, run_memory_s3
from tests.processes import Program
from tests.servers import Reply
from tests.zips import DEFLATE, STORED, Entry, build

CONTENT = b"content\n" * 100
LARGE = random.Random(1).randbytes(9 * 1024**2)  # copied by the store where it may
NAMES = {"to/a/small.txt", "to/a/large.bin"}
PROFILES = """
[profile reader]
aws_access_key_id = READER
aws_secret_access_key = secret
[profile writer]
aws_access_key_id = WRITER
aws_secret_access_key = secret
"""


class DenyingS3(MemoryS3):
    """A store that denies to write some keys."""

    def __init__(self) -> None:
        super().__init__()
        self.denied: set[str] = set()

    def answer(self, asked: Asked) -> Reply:
        """Deny a PUT of such a key."""
        if asked.method == "PUT" and asked.key in self.denied:
            return Reply(403, b"<Error><Code>AccessDenied</Code></Error>")
        return super().answer(asked)


class Places:
    """Two servers: one with an archive in the bucket ``from``, one with an empty bucket ``out``."""

    def __init__(self, program: Program, held: ExitStack) -> None:
        self.program = program
        self.here, self.there = MemoryS3(), DenyingS3()
        self.here_url = held.enter_context(run_memory_s3(self.here))
        self.there_url = held.enter_context(run_memory_s3(self.there))
        self.source = self.here.create_bucket("from")
        self.here.create_bucket("out")
        self.out = self.there.create_bucket("out")
        self.add("a.zip", build(Entry("small.txt", CONTENT, DEFLATE), _LARGE))

    def add(self, name: str, archive: bytes) -> None:
        """Put an archive into the source."""
        self.source.put(name, archive, ObjectFacts("application/zip", {}), if_absent=False)


_LARGE = Entry("large.bin", LARGE, STORED)


@pytest.fixture
def places(tmp_path: Path) -> Iterator[Places]:
    """The two servers, and the command line."""
    program = Program(tmp_path)
    (tmp_path / "no-config").write_text(PROFILES)
    with ExitStack() as held:
        yield Places(program, held)


def signers(s3: MemoryS3) -> set[str]:
    """Return the access keys that signed the requests of a server; empty: not signed."""
    found = (asked.headers.get("authorization", "") for asked in s3.asked)
    return {text.partition("Credential=")[2].partition("/")[0] for text in found}


def test_a_public_archive_needs_no_credentials(places: Places) -> None:
    """Without any credentials ls, cat, test and run work; no request is signed."""
    program = places.program
    program.variables |= {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}
    program.variables["AWS_EC2_METADATA_DISABLED"] = "true"
    public = ("s3://from/a.zip", "--endpoint-url", places.here_url)
    refused = program.run("ls", *public)
    assert refused.code == 6
    assert "no AWS credentials" in refused.err
    assert "--no-sign-request" in refused.err
    assert "large.bin" in program.run("ls", *public, "--no-sign-request").out
    cat = ("cat", public[0], "small.txt", *public[1:])
    assert program.run(*cat, "--no-sign-request").out == CONTENT.decode()
    assert program.run("test", *public, "--no-sign-request", "-w", "1").code == 0
    assert program.run("run", public[0], "to", *public[1:], "--no-sign-request").code == 0
    assert (program.folder / "to/a/large.bin").read_bytes() == LARGE
    assert signers(places.here) == {""}


def test_a_public_archive_into_a_bucket(places: Places) -> None:
    """Only the destination's requests are signed; nothing is copied between the servers."""
    ways = ("--endpoint-url", places.here_url, "--dest-endpoint-url", places.there_url)
    words = ("s3://from/a.zip", "s3://out/to", *ways, "--no-sign-request")
    ended = places.program.run("run", *words, "-w", "1")
    assert ended.code == 0, ended.err
    assert places.out.objects.keys() == NAMES
    assert signers(places.here) == {""}
    assert signers(places.there) == {"test"}
    places.there.asked.clear()
    verified = places.program.run("verify", *words, "--dest-no-sign-request")
    assert verified.code == 0, verified.err
    assert signers(places.there) == {""}


def test_one_server_and_an_anonymous_source_copy_nothing(places: Places) -> None:
    """The credentials of the destination may have no right to read the archive: it is streamed."""
    words = ("s3://from/a.zip", "s3://out/to", "--endpoint-url", places.here_url)
    assert places.program.run("run", *words, "--no-sign-request", "-w", "1").code == 0
    assert places.here.buckets["out"].objects.keys() == NAMES
    assert not [asked for asked in places.here.asked if "x-amz-copy-source" in asked.headers]


def test_the_requester_pays_for_the_source_only(places: Places) -> None:
    """Each request that reads the archive has the header, copies too, and no other has it."""
    words = ("s3://from/a.zip", "s3://out/to", "--endpoint-url", places.here_url)
    ended = places.program.run("run", *words, "--request-payer", "-w", "1")
    assert ended.code == 0, ended.err
    paying = [asked for asked in places.here.asked if "x-amz-request-payer" in asked.headers]
    reading = [
        asked
        for asked in places.here.asked
        if asked.bucket == "from" or "x-amz-copy-source" in asked.headers
    ]
    assert paying == reading
    assert any("x-amz-copy-source" in asked.headers for asked in paying)
    assert {asked.headers["x-amz-request-payer"] for asked in paying} == {"requester"}
    assert signers(places.here) == {"test"}


def test_another_profile_for_the_destination(places: Places) -> None:
    """One profile reads, the other writes, and `resume` remembers both."""
    places.there.denied = {"to/a/small.txt"}
    reading = ("--endpoint-url", places.here_url, "--profile", "reader")
    writing = ("--dest-endpoint-url", places.there_url, "--dest-profile", "writer")
    ways = (*reading, *writing, "-w", "1")
    ended = places.program.run("run", "s3://from/a.zip", "s3://out/to", *ways)
    assert ended.code == 5
    assert "access-denied" in ended.err
    places.there.denied.clear()
    places.program.variables["AWS_ENDPOINT_URL"] = "http://127.0.0.1:9"
    again = places.program.run("resume", "latest", "-w", "1")
    assert again.code == 0, again.err
    assert places.out.objects.keys() == NAMES
    assert signers(places.here) == {"READER"}
    assert signers(places.there) == {"WRITER"}
    kept = list((places.program.folder / ".runs").rglob("*.json"))
    assert "run.json" in {path.name for path in kept}
    assert not any(b"secret" in path.read_bytes() for path in kept)


def test_what_is_typed_replaces_what_is_remembered(places: Places) -> None:
    """A redrive to another server takes it; one that is not there is told at once."""
    places.there.denied = {"to/a/small.txt"}
    ways = ("--endpoint-url", places.here_url, "--dest-endpoint-url", places.there_url)
    ended = places.program.run("run", "s3://from/a.zip", "s3://out/to", *ways, "-w", "1")
    assert ended.code == 5
    nobody = ("--dest-endpoint-url", "http://127.0.0.1:9")
    refused = places.program.run("resume", "latest", *nobody, "-w", "1")
    assert refused.code == 6
    assert "s3://out: cannot reach http://127.0.0.1:9: connection refused" in refused.err
    assert "check --dest-endpoint-url, --region and the network" in refused.err
    here = ("--dest-endpoint-url", places.here_url)
    again = places.program.run("resume", "latest", *here, "-w", "1")
    assert again.code == 0, again.err
    assert "to/a/small.txt" in places.here.buckets["out"].objects


def test_an_abort_goes_where_the_run_wrote(places: Places) -> None:
    """It drops the incomplete uploads on the destination's server."""
    places.there.denied = {"to/a/small.txt"}
    ways = ("--endpoint-url", places.here_url, "--dest-endpoint-url", places.there_url)
    words = ("--dest-profile", "writer", "-w", "1")
    assert places.program.run("run", "s3://from/a.zip", "s3://out/to", *ways, *words).code == 5
    places.there.asked.clear()
    places.here.asked.clear()
    ended = places.program.run("abort", "latest")
    assert ended.code == 0, ended.err
    assert not places.here.asked
    assert signers(places.there) <= {"WRITER"}


def test_a_public_source_is_remembered(places: Places) -> None:
    """Of two options that exclude each other, the typed one counts."""
    places.there.denied = {"to/a/small.txt"}
    ways = ("--endpoint-url", places.here_url, "--dest-endpoint-url", places.there_url)
    words = ("s3://from/a.zip", "s3://out/to", *ways, "--no-sign-request", "-w", "1")
    assert places.program.run("run", *words).code == 5
    for payer, expected in (((), {""}), (("--request-payer",), {"test"})):
        places.here.asked.clear()
        assert places.program.run("resume", "latest", *payer, "-w", "1").code == 5
        assert signers(places.here) == expected


def test_several_archives_are_remembered_one_by_one(places: Places) -> None:
    """Each run of a batch can be continued without an option, archives inside it too."""
    inner = build(Entry("inner.txt", CONTENT, DEFLATE))
    places.add("b.zip", build(Entry("in.zip", inner)))
    places.there.denied = {"to/a/small.txt", "to/b/in/inner.txt"}
    ways = ("--endpoint-url", places.here_url, "--dest-endpoint-url", places.there_url)
    words = ("s3://from/a.zip", "s3://from/b.zip", "s3://out/to", *ways, "--nested", "1")
    assert places.program.run("run", *words, "-w", "1").code != 0
    places.there.denied.clear()
    listed = places.program.run("runs", "--json").out.splitlines()
    states = {one["run"]: one["state"] for one in map(json.loads, listed)}
    failed = [run for run, state in states.items() if state == "FAILED"]
    assert len(failed) == 2
    for run in failed:
        again = places.program.run("resume", run, "-w", "1")
        assert again.code == 0, again.err
    assert places.out.objects["to/b/in/inner.txt"].body == CONTENT


def test_an_endpoint_with_a_password_is_not_kept(places: Places) -> None:
    """The records of a run hold no credentials."""
    secret = places.there_url.replace("://", "://user:hidden@")
    words = ("s3://from/a.zip", "s3://out/to", "--endpoint-url", places.here_url)
    places.program.run("run", *words, "--dest-endpoint-url", secret, "-w", "1")
    kept = [path.read_bytes() for path in (places.program.folder / ".runs").rglob("*.json")]
    assert kept
    assert not any(b"hidden" in data for data in kept)


def test_archives_inside_are_read_where_they_were_written(places: Places) -> None:
    """A nested archive comes from the destination's server, with its credentials."""
    inner = build(Entry("inner.txt", CONTENT, DEFLATE))
    places.add("outer.zip", build(Entry("in.zip", inner)))
    ways = ("--endpoint-url", places.here_url, "--dest-endpoint-url", places.there_url)
    words = ("s3://from/outer.zip", "s3://out/to", *ways, "--no-sign-request", "--nested", "1")
    ended = places.program.run("run", *words, "-w", "1")
    assert ended.code == 0, ended.err
    assert places.out.objects["to/outer/in/inner.txt"].body == CONTENT
    assert signers(places.there) == {"test"}


def test_an_unreachable_destination_names_its_option(places: Places) -> None:
    """The advice is about the destination's options."""
    ways = ("--endpoint-url", places.here_url, "--dest-endpoint-url", "http://127.0.0.1:9")
    ended = places.program.run("run", "s3://from/a.zip", "s3://out/to", *ways)
    assert ended.code == 6
    assert "cannot reach http://127.0.0.1:9" in ended.err
    assert "check --dest-endpoint-url, --region and the network" in ended.err


def test_a_plan_knows_that_nothing_can_be_copied(places: Places) -> None:
    """A forecast takes the destination's options: other credentials mean no copies."""
    words = ("plan", "s3://from/a.zip", "s3://out/to", "--endpoint-url", places.here_url, "--json")
    shared = places.program.run(*words)
    apart = places.program.run(*words, "--dest-endpoint-url", places.there_url)
    assert (shared.code, apart.code) == (0, 0)
    assert '"copy"' in shared.out
    assert '"copy"' not in apart.out


def test_the_next_command_reaches_the_same_servers(places: Places) -> None:
    """A run to be started again is reached as before: on the screen, in `show` and on the page."""
    places.add("b.zip", build(seal_zipcrypto(Entry("secret.txt", CONTENT), b"open sesame")))
    ways = ("--endpoint-url", places.here_url, "--region", "eu-west-1")
    there = ("--dest-endpoint-url", places.there_url, "--dest-profile", "writer")
    words = ("s3://from/b.zip", "s3://out/to", *ways, "--request-payer", *there)
    ended = places.program.run("run", *words, "-w", "1")
    assert ended.code == 1
    command = (
        "s3unzip run s3://from/b.zip s3://out/to/ --on-conflict skip-unchanged "
        f"{' '.join(ways)} --request-payer {' '.join(there)} --password-file FILE"
    )
    assert f"next: {command}\n" in ended.err
    assert f"next: {command}\n" in places.program.run("show").out
    (page,) = (places.program.folder / ".runs").rglob("report.html")
    assert command in page.read_text()
    (places.program.folder / "FILE").write_bytes(b"open sesame")
    again = places.program.run(*command.split()[1:])
    assert again.code == 0, again.err
