"""Members that are unusual but right, by the command: into a folder and into S3, once and again."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from s3unzip.stores.ports import ObjectFacts
from tests.support.memory_server import MemoryS3, run_memory_s3
from tests.support.processes import Ended, Program
from tests.support.streams import EMPTY_BLOCKS, END_OF_STREAM, flushed
from tests.support.zips import DEFLATE, Entry, seal_aes

MIB = 1 << 20


class Target:
    """A destination of the command: the folder ``out`` or a bucket; keys begin with ``to/``."""

    def __init__(self, program: Program, bucket_url: str = "") -> None:
        self.program = program
        self.s3 = MemoryS3()
        self.destination = "s3://out/to" if bucket_url else "out/to"
        self._options = ("--endpoint-url", bucket_url) if bucket_url else ()

    def run(self, command: str, archive: Path, *words: str) -> Ended:
        target = (str(archive), self.destination, "--prefix", "", *self._options)
        return self.program.run(command, *target, *words)

    def extract(self, archive: Path, *words: str) -> Ended:
        return self.run("run", archive, "-w", "1", *words)

    def tune(self, **changes: int) -> None:
        self.program.variables["S3UNZIP_TUNING"] = json.dumps(changes)

    def write(self, name: str, body: bytes) -> None:
        """Write a file or an object without metadata, as another program does."""
        if not self._options:
            (self.program.folder / "out/to" / name).write_bytes(body)
            return
        self.s3.buckets["out"].put(
            f"to/{name}", body, ObjectFacts("application/octet-stream", {}), if_absent=False
        )

    @property
    def files(self) -> dict[str, bytes]:
        if not self._options:
            return self.program.files("out/to")
        objects = self.s3.buckets["out"].objects
        return {key.removeprefix("to/"): stored.body for key, stored in objects.items()}


@pytest.fixture(params=["folder", "s3"])
def target(request: pytest.FixtureRequest, program: Program) -> Iterator[Target]:
    if request.param == "folder":
        yield Target(program)
        return
    s3 = MemoryS3()
    s3.create_bucket("out")
    with run_memory_s3(s3) as url:
        target = Target(program, url)
        target.s3 = s3
        yield target


def test_a_split_member_whose_last_segment_is_empty(target: Target) -> None:
    """Empty blocks at the end of a split member make a slice of no bytes: the member is right."""
    content = bytes(6 * MIB)
    stretch = flushed(content)
    data = stretch + EMPTY_BLOCKS * (len(stretch) // 80) + END_OF_STREAM
    archive = target.program.add("a.zip", Entry("big", content, DEFLATE, data=data), Entry("b"))
    target.tune(small_member=1_000, split_from=1_000, segment_bytes=len(data) // 2 + 1)
    target.extract(archive).ends(0)
    assert target.files == {"big": content, "b": b""}


def test_which_of_two_overlapping_members_is_written(target: Target) -> None:
    """The member that reaches into the next one fails, in one batch, in two, and as a large one."""
    hidden = b"\x99\x99\0\0"  # an extra field that only the local header has
    first = Entry("a", b"datPK\3\4", data=hidden + b"dat", local={"extra_length": len(hidden)})
    archive = target.program.add("a.zip", first, Entry("b", b"hello"), Entry("c", b"!"))
    tunings: list[dict[str, int]] = [{}, {"batch_members": 1}, {"small_member": 6}]
    for tuning in tunings:
        target.tune(**tuning)
        ended = target.extract(archive)
        assert (ended.code, target.files) == (1, {"b": b"hello", "c": b"!"}), ended.err
        assert "to/a: Two members share bytes" in ended.err


def test_gzip_files_are_known_again(target: Target) -> None:
    """Verify compares the content of gzip files, and a second run leaves them alone."""
    entries = (Entry("deflated.txt", b"hello " * 50, DEFLATE), Entry("stored.bin", b"stored"))
    archive = target.program.add("a.zip", *entries)
    form = ("--as-gzip", "suffix")
    assert target.extract(archive, *form).code == 0
    for command in (("verify",), ("verify", "--deep")):
        target.run(command[0], archive, *form, *command[1:]).ends(0)
    for rule in ("never", "skip-unchanged"):
        target.extract(archive, *form, "--on-conflict", rule).ends(0, "2 unchanged")
    target.write("deflated.txt.gz", gzip.compress(b"other " * 50, mtime=0))
    assert target.run("verify", archive, *form).code == 1
    assert target.extract(archive, *form, "--on-conflict", "never").code == 1
    assert target.extract(archive, *form, "--on-conflict", "skip-unchanged").code == 0
    assert gzip.decompress(target.files["deflated.txt.gz"]) == b"hello " * 50


@pytest.mark.parametrize("words", [(), ("--as-gzip", "suffix")], ids=["plain", "gzip"])
def test_members_without_a_declared_crc_are_known_again(
    target: Target, words: tuple[str, ...]
) -> None:
    """Of AE-2 members, small and large, `never` says that they are unchanged or others."""
    contents = {"small": b"s" * 1_000, "large": b"l" * 20_000}
    sealed = [seal_aes(Entry(name, data), b"pw") for name, data in contents.items()]
    archive = target.program.add("a.zip", *sealed)
    (target.program.folder / "pw").write_bytes(b"pw\n")
    target.tune(small_member=10_000)
    words += ("--password-file", "pw")
    assert target.extract(archive, *words).code == 0
    names = sorted(target.files)
    for small_member in (10_000, 100_000):  # the same members as small ones, too
        target.tune(small_member=small_member)
        target.extract(archive, *words, "--on-conflict", "never").ends(0, "2 unchanged")
    target.tune(small_member=10_000)
    assert "1 unchanged" in target.extract(archive, *words, "--on-conflict", "skip-unchanged").err
    for name in names:
        target.write(name, b"x" * len(target.files[name]))
    target.extract(archive, *words, "--on-conflict", "never").ends(1, "2 failed")


def test_a_member_that_is_also_a_folder(target: Target) -> None:
    """An empty one is the folder; one with content fails, always itself, and S3 keeps all."""
    contents = {"d/a": b"1", "e": b"", "e/b": b"2", "f": b"content", "f/g/c": b"3", "h": b""}
    archive = target.program.add("a.zip", *map(Entry, *zip(*contents.items(), strict=True)))
    is_folder = not target.s3.buckets
    folders = {"e"} if is_folder else set()
    failed = {"f"} if is_folder else set()
    code = int(is_folder)
    written = {name: body for name, body in contents.items() if name not in folders | failed}
    for command, words in (("plan", ()), ("run", ("-w", "1")), ("verify", ())):
        ended = target.run(command, archive, *words)
        told = ended.out + ended.err
        assert ended.code == (code if command == "run" else 0), told
        assert ("name-is-folder" in told or "more are refused" in told) is is_folder
    assert target.files == written
    warning = "2 with a warning: A key is also the folder of another key."
    target.program.run("ls", str(archive)).ends(0, warning)
    target.program.run("test", str(archive)).ends(0).prints(warning)
    target.program.run("resume", "latest", "--failed", "-w", "1").ends(code).hides(
        "next: s3unzip resume"
    )
    target.extract(archive, "--exclude", "f").ends(0)


def test_names_that_a_file_system_does_not_take(target: Target) -> None:
    """However many they are: each member fails alone, and nobody is told to try it again."""
    long = [f"{number:0256}" for number in range(30)]
    archive = target.program.add("a.zip", *(Entry(name, b"x") for name in [*long, "z"]))
    ended = target.extract(archive)
    if target.s3.buckets:
        assert (ended.code, len(target.files)) == (0, 31)
        return
    assert (ended.code, target.files) == (1, {"z": b"x"})
    assert "30 failed: The file system does not accept the name. (name-refused)" in ended.err
    assert "s3unzip resume" not in ended.err
    verified = target.run("verify", archive)
    assert (verified.code, "30 missing" in verified.out) == (1, True)
