"""Deleting what is no member of the archive, at the real command line."""

import json
import os
import pty
from collections.abc import Iterator
from pathlib import Path

import pytest

from s3unzip.stores.ports import ObjectFacts
from tests.memory_server import MemoryS3, run_memory_s3
from tests.processes import Ended, Program
from tests.zips import DEFLATE, Entry, build

ENTRIES = tuple(Entry(name, name.encode() * 9, DEFLATE) for name in ("a.txt", "d/b.txt"))
BROKEN = Entry("c.txt", b"c" * 99, DEFLATE, local={"crc32": 1}, central={"crc32": 1})
MEMBERS = {"a.txt", "d/b.txt"}
FACTS = ObjectFacts("text/plain", {})


class Place:
    """A destination of one kind, seen past the product."""

    def __init__(self, program: Program) -> None:
        self.program = program
        (program.folder / "a.zip").write_bytes(build(*ENTRIES))
        (program.folder / "broken.zip").write_bytes(build(*ENTRIES, BROKEN))

    def run(self, *words: str, source: str = "a.zip", answer: str | None = None) -> Ended:
        """Extract an archive below ``site/``; `answer` is typed on a terminal."""
        command = ["run", source, self.destination, "--prefix", "site", "-w", "1", *self.ways]
        if answer is None:
            return self.program.run(*command, *words)
        return type_at(self.program, [*command, *words], answer)

    destination = "out"
    ways: tuple[str, ...] = ()

    def add(self, *names: str) -> None:
        """Put objects at the destination."""
        for name in names:
            path = self.program.folder / "out" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("extra")

    @property
    def names(self) -> set[str]:
        """What is at the destination."""
        root = self.program.folder / "out"
        return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


class Bucket(Place):
    """A bucket of a server in memory."""

    destination = "s3://out"

    def __init__(self, program: Program, s3: MemoryS3, url: str) -> None:
        super().__init__(program)
        self.s3 = s3
        self.ways = ("--endpoint-url", url)
        self._objects = s3.create_bucket("out")

    def add(self, *names: str) -> None:
        """Put objects into the bucket."""
        for name in names:
            self._objects.put(name, b"extra", FACTS, if_absent=False)

    @property
    def names(self) -> set[str]:
        """The keys of the bucket."""
        return set(self._objects.objects)


def type_at(program: Program, words: list[str], answer: str) -> Ended:
    """Run a command whose standard input is a terminal on which `answer` is typed."""
    master, slave = pty.openpty()
    os.write(master, answer.encode())
    try:
        return program.run(*words, stdin=slave)
    finally:
        os.close(slave)
        os.close(master)


@pytest.fixture(params=["folder", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """An empty destination of each kind."""
    program = Program(tmp_path)
    if request.param == "folder":
        yield Place(program)
        return
    s3 = MemoryS3()
    with run_memory_s3(s3) as url:
        yield Bucket(program, s3, url)


@pytest.fixture
def folder(tmp_path: Path) -> Place:
    """An empty folder."""
    return Place(Program(tmp_path))


def below_site(*more: str) -> set[str]:
    """Return the members' names at the destination, and more."""
    return {f"site/{name}" for name in MEMBERS} | set(more)


def test_only_what_is_extra_below_the_prefix_goes(place: Place) -> None:
    """Members and what is beside the prefix stay; a dry run tells it before and deletes nothing."""
    place.add("site/old.txt", "site/d/old.txt", "site2/kept.txt", "kept.txt")
    before = place.names
    dry = place.run("--delete-extra", "1000", "--dry-run", "--json")
    assert dry.code == 0, dry.err
    doomed = [json.loads(line) for line in dry.out.splitlines()]
    keys = [one["key"] for one in doomed if one["action"] == "delete"]
    assert [key.rpartition("site/")[2] for key in keys] == ["d/old.txt", "old.txt"]
    assert "2 delete" in dry.err
    assert place.names == before
    ended = place.run("--delete-extra", "1000")
    assert ended.code == 0, ended.err
    assert "deleting 2 objects (10 B)" in ended.err
    assert place.names == below_site("site2/kept.txt", "kept.txt")
    again = place.run("--delete-extra", "1000", "-q", "--on-conflict", "skip-unchanged")
    assert (again.code, again.err) == (0, "")


def test_somebody_must_agree(place: Place) -> None:
    """A number must be given; on a terminal it is asked besides."""
    place.add("site/old.txt")
    refused = place.run("--delete-extra")
    assert refused.code == 2
    assert "requires an argument (see s3unzip run --help)" in refused.err
    assert place.names == {"site/old.txt"}
    no = place.run("--delete-extra", "1000", answer="n\n")
    assert no.code == 1
    assert "1 object (5 B) is no member of the archive:" in no.err
    assert "site/old.txt\n" in no.err
    assert "Delete them? [y/N] nothing is deleted" in no.err
    assert place.names == below_site("site/old.txt")
    yes = place.run("--delete-extra", "1000", answer="y\n")
    assert yes.code == 0
    assert place.names == below_site()


def test_too_many_are_too_many(place: Place) -> None:
    """Above the number nothing is deleted, and the exit code says so."""
    place.add(*(f"site/{n}" for n in range(12)))
    ended = place.run("--delete-extra", "11")
    assert ended.code == 1
    assert "12 objects (60 B) are no members of the archive" in ended.err
    assert "nothing is deleted, because --delete-extra is 11" in ended.err
    assert len(place.names) == 12 + len(MEMBERS)
    asked = place.run("--delete-extra", "1000", answer="n\n")
    assert "and 2 more; --dry-run lists them all" in asked.err
    assert place.run("--delete-extra", "12").code == 0
    assert place.names == below_site()


def test_a_run_with_failures_deletes_nothing(place: Place) -> None:
    """Only a run that wrote all members deletes."""
    place.add("site/old.txt")
    dry = place.run("--delete-extra", "1000", "--dry-run", source="broken.zip")
    assert "delete" in dry.err  # the data is not read: the failure is not known yet
    ended = place.run("--delete-extra", "1000", source="broken.zip")
    assert ended.code == 1
    assert "deleting" not in ended.err
    assert "site/old.txt" in place.names


def test_a_refused_member_stops_the_deletion(place: Place) -> None:
    """A key with other content and --on-conflict never is a failure, so nothing is deleted."""
    place.add("site/a.txt", "site/old.txt")
    dry = place.run("--delete-extra", "1000", "--dry-run", "--on-conflict", "never")
    assert "1 refuse" in dry.err
    assert "delete" not in dry.err
    assert place.run("--delete-extra", "1000", "--on-conflict", "never").code == 1
    assert "site/old.txt" in place.names


def test_the_marker_is_not_extra(place: Place) -> None:
    """A run that writes the marker keeps it; one that does not deletes an old one."""
    assert place.run("--marker", "--delete-extra", "1000").code == 0
    assert place.names == below_site("site/_SUCCESS")
    dry = place.run("--marker", "--delete-extra", "1000", "--dry-run")
    assert "delete" not in dry.err
    assert place.run("--delete-extra", "1000").code == 0
    assert place.names == below_site()


def test_another_archives_prefix_is_left_alone(place: Place) -> None:
    """What a run of another archive wrote below or above the prefix is not extra."""
    other = place.program.folder / "other.zip"
    other.write_bytes(build(Entry("site/x/theirs.txt", b"1")))
    wider = ("run", "other.zip", place.destination, "--prefix", "", "-w", "1", *place.ways)
    assert place.program.run(*wider).code == 0
    for words in ((), ("--dry-run",)):
        ended = place.run("--delete-extra", "1000", *words)
        assert ended.code == 2
        assert "extracted another archive" in ended.err
        assert "give each archive a prefix of its own" in ended.err
    assert place.names == {"site/x/theirs.txt"}


def test_links_are_not_followed(folder: Place) -> None:
    """A link below the prefix stays, and so does what it leads to."""
    outside = folder.program.folder / "outside"
    outside.mkdir()
    (outside / "precious.txt").write_text("mine")
    folder.add("site/old.txt")
    (folder.program.folder / "out/site/link").symlink_to(outside)
    (folder.program.folder / "out/site/file").symlink_to(outside / "precious.txt")
    assert folder.run("--delete-extra", "1000").code == 0
    assert (outside / "precious.txt").read_text() == "mine"
    assert (folder.program.folder / "out/site/link").is_symlink()
    assert "site/old.txt" not in folder.names


def test_the_archive_and_the_records_are_not_extra(folder: Place) -> None:
    """A prefix that holds the archive itself, or the runs of this machine, is refused."""
    home = folder.program.folder
    folder.add("site/x")
    (home / "out/site/a.zip").write_bytes((home / "a.zip").read_bytes())
    (home / "link.zip").symlink_to(home / "out/site/a.zip")
    ended = folder.run("--delete-extra", "1000", source="link.zip")
    assert ended.code == 2
    assert "the archive (" in ended.err
    folder.program.variables["S3UNZIP_HOME"] = str(home / "out/site/runs")
    ended = folder.run("--delete-extra", "1000")
    assert ended.code == 2
    assert "the records of runs (" in ended.err


def test_an_archive_in_the_same_bucket_is_not_extra(tmp_path: Path) -> None:
    """Nor is a prefix taken that holds the archive in S3."""
    s3 = MemoryS3()
    with run_memory_s3(s3) as url:
        place = Bucket(Program(tmp_path), s3, url)
        s3.buckets["out"].put("site/a.zip", build(*ENTRIES), FACTS, if_absent=False)
        ended = place.run("--delete-extra", "1000", source="s3://out/site/a.zip")
    assert ended.code == 2
    assert "the archive (s3://out/site/a.zip) is below site/" in ended.err


def test_what_becomes_of_the_archive_stays_in_the_report(folder: Place) -> None:
    """The report that counts the deletion still says that the archive was deleted."""
    folder.add("site/old.txt")
    ended = folder.run("--delete-extra", "1000", "--after-success", "delete", "--json")
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["after_success"]["state"] == "done"
    shown = json.loads(folder.program.run("show", "latest", "--json").out)
    assert shown["after_success"]["state"] == "done"
    assert not (folder.program.folder / "a.zip").exists()
    assert folder.names == below_site()
