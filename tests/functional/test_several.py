"""Several archives with one command, and archives in several parts."""

import os
import shutil
import subprocess
from contextlib import AbstractContextManager, nullcontext

import pytest

from s3unzip.api.extraction import check_prefixes_differ, find_archives
from s3unzip.errors import NotFoundError, UsageError
from s3unzip.model import (
    AfterSuccess,
    Batch,
    Location,
    OnConflict,
    Options,
    Request,
    SourceAction,
    decode,
)
from s3unzip.stores.config import StoreConfig
from tests.support import memory_server, servers
from tests.support.processes import Program
from tests.support.zips import (
    DEFLATE,
    Entry,
    build,
    build_split,
    cut_pieces,
    part_names,
    with_wrong_crc,
)

ENTRIES = [Entry(f"d/{n}.txt", b"%d, " % n * 400, DEFLATE * (n % 2)) for n in range(9)]
CONTENTS = {str(entry.name): entry.content for entry in ENTRIES}
PARTS = dict(
    zip(part_names("a", 3), build_split(*ENTRIES, sizes=[2_500, 2_500, 2_500]), strict=True)
)


@pytest.fixture
def program(program: Program, monkeypatch: pytest.MonkeyPatch) -> Program:
    for name in ("a", "b", "sub/c", "sub/deep/D"):
        program.add(f"in/{name}.zip", Entry("m.txt", name.encode() * 20, DEFLATE))
    (program.folder / "in/notes.txt").write_text("no archive")
    program.add(
        "damaged.zip",
        Entry("good", b"1"),
        with_wrong_crc("bad", b"x" * 99, DEFLATE),
    )
    (program.folder / "text.zip").write_bytes(b"no archive at all")
    monkeypatch.chdir(program.folder)
    return program


def test_folders_and_globs(program: Program) -> None:
    """A folder is searched however deep, ``*`` stops at a slash, and nothing is named twice."""
    for name in ("odd[1].zip", "sp/a.zip.001", "sp/a.zip.002", "sp/b.z01", "sp/b.zip"):
        program.add(name)

    def find(*words: str) -> list[str]:
        return [one.key.rsplit("/", 1)[-1] for one in find_archives(words, StoreConfig())]

    assert find("in") == find("in/**/*.zip") == ["a.zip", "b.zip", "c.zip", "D.zip"]
    assert [find("in/*.zip", "in/a.zip"), find("odd[1].zip"), find("sp"), find("sp/*")] == [
        ["a.zip", "b.zip"],
        ["odd[1].zip"],
        *[["a.zip.001", "b.zip"]] * 2,
    ]
    with pytest.raises(NotFoundError, match="no archive matches"):
        find("none*")


def test_a_glob_of_a_bucket_needs_one_list(program: Program, s3: memory_server.MemoryS3) -> None:
    """HEAD shows that no object has the name of the glob, and a LIST has the archives.

    The HEAD is sent again after a 503.
    """
    faults = [servers.s3_error(503, "SlowDown")]
    s3.spoil = lambda asked: faults.pop() if asked.method == "HEAD" and faults else None
    program.run("run", "s3://from/*.zip", "out", "--endpoint-url", s3.url).ends(
        6, "no archive matches"
    )
    assert [(asked.method, asked.key) for asked in s3.asked] == [
        *[("HEAD", "*.zip")] * 3,
        ("GET", ""),
    ]


def test_a_contradiction_is_refused_before_a_list(
    program: Program, s3: memory_server.MemoryS3
) -> None:
    """Whoever asks for what cannot be done is told so before a bucket is listed."""
    program.run(
        *("run", "s3://from/*.zip", "out", "--endpoint-url", s3.url),
        *("--no-sign-request", "--after-success", "delete"),
    ).ends(2, "leave out one of them")
    assert s3.asked == []


@pytest.mark.parametrize(
    ("options", "after_success", "answer"),
    [
        (
            Options(),
            None,
            pytest.raises(
                UsageError, match=r"extracted to a/.*, or extract each archive into its own DEST"
            ),
        ),
        (
            Options(key_template="../{member}"),
            None,
            pytest.raises(UsageError, match="leaves the destination's prefix"),
        ),
        (
            Options(key_template="{archive_key}/{member}"),
            AfterSuccess(SourceAction.DELETE),
            nullcontext(),
        ),
        (Options(key_template="{member}"), None, nullcontext()),
        (
            Options(key_template="{member}"),
            AfterSuccess(SourceAction.DELETE),
            pytest.raises(UsageError, match="extracted to s3://out/, where one may overwrite"),
        ),
        (
            Options(key_template="{member}", on_conflict=OnConflict.NEVER),
            AfterSuccess(SourceAction.DELETE),
            nullcontext(),
        ),
    ],
)
def test_archives_with_one_name_are_kept_apart(
    options: Options, after_success: AfterSuccess | None, answer: AbstractContextManager[object]
) -> None:
    """Two would overwrite each other's members, unless the template asks for one place.

    They may not be deleted then, except if nothing is overwritten.
    """
    with answer:
        check_prefixes_differ(
            [
                Request(
                    Location("s3", "in", key),
                    Location("s3", "out", ""),
                    options,
                    after_success=after_success,
                )
                for key in ("x/a.zip", "y/a.zip")
            ]
        )


def test_a_folder_is_extracted(program: Program) -> None:
    """Each archive is below its own name; the table and the sums are on stderr."""
    program.run("run", "in", "out", "--dry-run").ends(0).prints("a/m.txt", "D/m.txt")
    assert not (program.folder / "out").exists()
    ended = program.run("run", "in", "out", "-w", "2").ends(
        0, "4 of 4 archives are extracted: 4 members"
    )
    assert program.files("out") == {
        f"{name[-1]}/m.txt": name.encode() * 20 for name in ("a", "b", "sub/c", "sub/deep/D")
    }
    assert ended.err.count("COMPLETED") == len(program.runs()) == 4


def test_one_failure_stops_no_other(program: Program) -> None:
    """The exit code is the highest one; JSON is one object; what is COMPLETED is deleted."""
    words = ("in/a.zip", "damaged.zip", "text.zip", "none.zip", "latin-\udcfc.zip", "in/b.zip")
    program.add(words[4], Entry("m.txt", b""))
    program.extract(*words, "out", "--dry-run").ends(6, "none.zip: no such file").prints(
        f"{program.folder}/out/b/m.txt"
    )
    ended = program.extract(*words, "out", "--after-success", "delete", "--json").ends(
        6,
        "2 of 6 archives are extracted: 3 members",
        "COMPLETED_WITH_ERRORS  2        1   ",
        rf"{program.folder}/latin-\udcfc.zip: records cannot contain a name that is not UTF-8; use",
    )
    batch = decode(ended.out, Batch)
    assert ([end.exit_code for end in batch.archives], batch.exit_code) == ([0, 1, 3, 6, 2, 0], 6)
    assert "no such file" in str(batch.archives[3].error)
    assert ended.lines[0]["archives"][0]["report"]["verdict"] == "COMPLETED"
    assert program.files("out").keys() == {"a/m.txt", "damaged/good", "b/m.txt"}
    assert [name for name in words if (program.folder / name).exists()] == [
        "damaged.zip",
        "text.zip",
        "latin-\udcfc.zip",
    ]


@pytest.mark.parametrize("dry_run", [(), ("--dry-run",)])
def test_the_password_is_asked_for_once(
    program: Program, dry_run: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All archives are opened with the answer, or none if it is not UTF-8."""
    answers = ["secret", "\udcfc"]
    monkeypatch.setattr("getpass.getpass", lambda _: answers.pop())
    words = ("run", "in/a.zip", "in/b.zip", "out", "--password-file", "-", *dry_run)
    program.run(*words, answer="").ends(
        2, "--password-file -: the password is not UTF-8; write it into"
    )
    program.run(*words, answer="").ends(0)
    assert not answers


@pytest.mark.parametrize("words", ["text.zip", "text.zip in/a.zip"])
def test_a_quiet_run_says_why_it_failed(program: Program, words: str) -> None:
    """One archive or several: the verdict and its reason, but nothing of what is right."""
    ended = program.run("run", *words.split(), "out", "-q").ends(3, "REJECTED  ", "(no-eocd)")
    assert len(ended.err.splitlines()) == 2


@pytest.mark.parametrize("quiet", ["-q", "--json"])
@pytest.mark.parametrize("words", ["nested.zip", "nested.zip in/a.zip"])
def test_a_nested_archive_that_fails_is_named(program: Program, words: str, quiet: str) -> None:
    """With its reason, which is said once; its exit code is that of the command.

    `resume --failed` of the outer run, which is complete, tries the nested archive again.
    """
    program.add(
        "nested.zip", Entry("inner.zip", build(Entry("m", b"1")).replace(b"PK\1\2", b"PK\1\3"))
    )
    ended = program.run("run", *words.split(), "out", "--nested", "1", quiet).ends(1)
    once = ("nested REJECTED  ", "A header of ", "(cd-bad-signature)")
    assert [ended.err.count(text) for text in once] == [1, 1, 1]
    program.run("resume", "nested", "--failed").ends(1, "nested REJECTED  ")


def test_archives_share_the_workers(program: Program) -> None:
    """The archives inside and the warnings belong to each."""
    program.add(
        "nested.zip", Entry("inner.zip", build(Entry("m.txt", b"inner"))), Entry("bad.zip", b"PK")
    )
    words = ("damaged.zip", "nested.zip", "text.zip", "out", "-i", "*", "-i", "nothing*")
    batch = decode(program.run("run", *words, "--nested", "1", "-w", "2", "--json").out, Batch)
    assert [end.exit_code for end in batch.archives] == [1, 0, 3]
    assert batch.archives[0].warnings
    assert sorted([str(run.verdict) for run in batch.archives[1].nested]) == [
        "COMPLETED",
        "REJECTED",
    ]
    assert program.files("out")["nested/inner/m.txt"] == b"inner"


def test_every_command_reads_all_parts(program: Program) -> None:
    """`run`, `ls`, `cat`, `test`, `verify` and `plan` take the last part for the whole archive."""
    for name, part in PARTS.items():
        (program.folder / name).write_bytes(part)
    assert [line["name"] for line in program.run("ls", "a.zip", "--json").lines] == list(CONTENTS)
    assert program.run("cat", "a.zip", "d/3.txt").out.encode() == CONTENTS["d/3.txt"]
    assert program.run("test", "a.zip", "-w", "1").code == 0
    assert program.run("plan", "a.zip").code == 0
    program.run("run", "a.zip", "in/b.zip", "out", "-w", "2", "--after-success", "delete").ends(
        0, "a.zip\n  the archive was not deleted: it is split into 3 files"
    )
    assert (program.files("out/a"), program.run("verify", "a.zip", "out").code) == (CONTENTS, 0)


def test_parts_on_the_web(program: Program) -> None:
    """The other parts are looked for beside the URL, each by its own ranges."""
    files = dict(PARTS)
    with servers.HttpServer(servers.WebFiles(files)) as web:
        program.extract(f"{web.url}/a.zip", "out").ends(0)
        assert program.files("out/a") == CONTENTS
        del files["a.z02"]
        program.extract(f"{web.url}/a.zip", "again").ends(
            3,
            "A part of the split archive is missing: a.z02, part 2 of 3 (part-missing",
            "Put all parts into one place",
        )
    assert not (program.folder / "again").exists()


@pytest.mark.parametrize("newest", [0, 3, -1])
def test_a_file_that_was_cut(program: Program, newest: int) -> None:
    """The pieces of `split` and 7-Zip are read from the first one on.

    The id of the run begins with the time of the newest piece, so ids sort by time.
    """
    pieces = cut_pieces(build(*ENTRIES), 700)
    files = [program.folder / f"b.zip.{number:03}" for number in range(1, len(pieces) + 1)]
    for file, piece in zip(files, pieces, strict=True):
        file.write_bytes(piece)
        os.utime(file, (0, 1_500_000_000))
    os.utime(files[newest], (0, 1_600_000_000))
    program.extract("b.zip.001", "out").ends(0, "  run 2020-09-13/122640-b-")
    assert program.files("out/b") == CONTENTS


@pytest.mark.skipif(shutil.which("zip") is None, reason="needs Info-ZIP's zip on PATH")
def test_an_archive_of_info_zip(program: Program) -> None:
    """What `zip -s` writes is read; our own builder makes the same layout."""
    folder = program.folder / "made"
    folder.mkdir()
    for number in range(7):
        (folder / f"{number}.bin").write_bytes(bytes((number * i * i) % 251 for i in range(50_000)))
    subprocess.run(
        ["zip", "-q", "-0", "-r", "-s", "64k", "b.zip", "made"],
        check=True,
        timeout=servers.HANG_SECONDS,
    )
    assert (program.folder / "b.z05").exists()
    assert program.extract("b.zip", "out").code == 0
    assert program.files("out/b/made") == program.files("made")
