"""Options that users of other tools expect, at the real command line."""

import json
import shlex
from pathlib import Path

import pytest

from tests.processes import Program
from tests.servers import HttpServer, WebFiles
from tests.zips import DEFLATE, Entry, build

NAMES = ("top.txt", "a/one.txt", "a/b/two.txt")
WRONG = {"crc32": 1}


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """Return the command line, in a folder with a sound archive and a damaged one."""
    entries = [Entry(name, name.encode() * 50, DEFLATE) for name in NAMES]
    (tmp_path / "a.zip").write_bytes(build(*entries))
    bad = Entry("bad.txt", b"x" * 500, DEFLATE, local=WRONG, central=WRONG)
    (tmp_path / "damaged.zip").write_bytes(build(*entries, bad))
    return Program(tmp_path)


def files_below(folder: Path) -> set[str]:
    """Return the paths of all files below a folder."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_test_checks_every_member_and_writes_nothing(program: Program) -> None:
    """Exit code 0 for a sound archive; no file, no record of a run."""
    ended = program.run("test", "a.zip", "-w", "1")
    assert ended.code == 0
    assert ended.err.startswith("SOUND")
    assert "3 members are sound, 0 are not" in ended.err
    assert files_below(program.folder) == {"a.zip", "damaged.zip"}


def test_test_tells_which_member_is_damaged(program: Program) -> None:
    """Exit code 1, the reason in words and the member; of a web server too."""
    with HttpServer(WebFiles({"d.zip": (program.folder / "damaged.zip").read_bytes()})) as web:
        for source in ("damaged.zip", f"{web.url}/d.zip"):
            ended = program.run("test", source, "-w", "1")
            assert ended.code == 1
            assert "3 members are sound, 1 is not" in ended.err
            assert "The data does not have the declared CRC-32. (crc-mismatch)" in ended.err
            assert "bad.txt" in ended.err


def test_test_takes_a_selection(program: Program) -> None:
    """Only what is asked for; nothing selected is told."""
    assert program.run("test", "damaged.zip", "-x", "bad.txt", "-w", "1").code == 0
    assert program.run("test", "a.zip", "-i", "*.none", "-w", "1").code == 7


def test_a_dry_run_lists_decisions(program: Program) -> None:
    """Each key with what would be done, before and after a run, and nothing is written."""
    ended = program.run("run", "a.zip", "out", "--dry-run", "--json")
    before = [json.loads(line) for line in ended.out.splitlines()]
    out = f"{program.folder}/out/a/"
    assert {one["key"]: one["action"] for one in before} == {out + name: "write" for name in NAMES}
    assert "dry run, nothing is written: 3 write" in ended.err
    assert files_below(program.folder) == {"a.zip", "damaged.zip"}
    assert program.run("run", "a.zip", "out", "-w", "1", "-q").code == 0
    (program.folder / "out/a/top.txt").write_text("changed")
    for conflict, code, shown in (
        ("overwrite", 0, "3 overwrite"),
        ("skip-unchanged", 0, "2 unchanged, 1 overwrite"),
        ("never", 1, "2 unchanged, 1 refuse"),
    ):
        ended = program.run("run", "a.zip", "out", "--dry-run", "--on-conflict", conflict)
        assert (ended.code, ended.err.strip().rpartition(": ")[2]) == (code, shown)
    assert (program.folder / "out/a/top.txt").read_text() == "changed"


def test_a_dry_run_tells_what_would_fail(program: Program) -> None:
    """A member that the directory alone condemns is listed with its reason."""
    (program.folder / "up.zip").write_bytes(build(Entry("../up", b"x"), Entry("ok", b"1")))
    ended = program.run("run", "up.zip", "out", "--dry-run")
    assert ended.code == 1
    assert "(name-dotdot)" in ended.out


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--strip-components", "1"), {"a/one.txt", "a/b/two.txt"}),
        (("--strip-components", "1", "--prefix", ""), {"one.txt", "b/two.txt"}),
        (("--strip-components", "2", "--prefix", "p"), {"p/two.txt"}),
        (("--key-template", "p/{name}"), {"p/top.txt", "p/one.txt", "p/two.txt"}),
    ],
)
def test_folders_are_left_out(
    program: Program, options: tuple[str, ...], expected: set[str]
) -> None:
    """Of keys, and `verify` with the same options agrees."""
    if options == ("--strip-components", "1"):
        expected = {"a/one.txt", "a/b/two.txt"}
    assert program.run("run", "a.zip", "out", "-w", "1", "-q", *options).code == 0
    assert files_below(program.folder / "out") == expected
    assert program.run("verify", "a.zip", "out", *options).code == 0


def test_keys_without_folders_may_collide(program: Program) -> None:
    """Two members with one name: nothing is written, and both are named."""
    (program.folder / "two.zip").write_bytes(build(Entry("a/x", b"1"), Entry("b/x", b"2")))
    ended = program.run("run", "two.zip", "out", "--key-template", "{name}")
    assert ended.code == 3
    assert "Two members would be written under one key" in ended.err
    assert not (program.folder / "out").exists()


def test_passwords_from_a_variable(program: Program) -> None:
    """S3UNZIP_PASSWORD opens members, and is not in the run's records."""
    from tests.docs.archives import make_archive  # noqa: PLC0415 - needs the ciphers

    (program.folder / "secret.zip").write_bytes(make_archive("secret.zip"))
    program.variables["S3UNZIP_PASSWORD"] = "open sesame"
    assert program.run("run", "secret.zip", "out", "-w", "1", "-q").code == 0
    records = b"".join(path.read_bytes() for path in (program.folder / ".runs").rglob("*.json"))
    assert b"open sesame" not in records


def test_the_next_command_opens_encrypted_members(program: Program) -> None:
    """It is offered where the password was forgotten, and works as it stands; resuming does not."""
    from tests.docs.archives import make_archive  # noqa: PLC0415 - needs the ciphers

    (program.folder / "my secret.zip").write_bytes(make_archive("secret.zip"))
    ended = program.run("run", "my secret.zip", "to here", "--prefix", "p q", "-w", "1")
    assert ended.code == 1
    assert "s3unzip resume does not read these members" in ended.err
    offered = ended.err.rpartition("next: s3unzip ")[2]
    (program.folder / "FILE").write_text("open sesame\n")
    assert program.run(*shlex.split(offered), "-w", "1").code == 0
    found = files_below(program.folder / "to here")
    assert found
    assert all(name.startswith("p q/") for name in found)


def test_a_completed_run_is_not_resumed(program: Program) -> None:
    """It is told that nothing is left, of failed members too."""
    assert program.run("run", "a.zip", "out", "-w", "1", "-q").code == 0
    for words in ((), ("--failed",)):
        ended = program.run("resume", "latest", *words)
        assert ended.code == 0
        assert "COMPLETED already, nothing is left to do" in ended.err


def test_runs_are_a_table(program: Program) -> None:
    """A header, then state, counts, source and destination of each run."""
    program.run("run", "a.zip", "out", "-w", "1", "-q")
    program.run("run", "damaged.zip", "out", "-w", "1", "-q")
    header, *lines = program.run("runs").out.splitlines()
    assert header.split()[2:6] == ["STATE", "TOOK", "MEMBERS", "FAILED"]
    assert len({line.index("  /") for line in lines}) == 1
    assert {line.split()[2] for line in lines} == {"COMPLETED", "COMPLETED_WITH_ERRORS"}
    assert all(" -> " in line for line in lines)
    listed = [json.loads(line) for line in program.run("runs", "--json").out.splitlines()]
    assert {one.get("failed", 0) for one in listed} == {0, 1}


def test_members_without_the_folders_collide_with_nothing(program: Program) -> None:
    """A member that is not extracted for want of folders does not make another a duplicate."""
    entries = [Entry("x", b"above"), Entry("a/x", b"below")]
    (program.folder / "two.zip").write_bytes(build(*entries))
    options = ("--strip-components", "1", "--prefix", "")
    assert program.run("run", "two.zip", "out", "-w", "1", "-q", *options).code == 0
    assert (program.folder / "out/x").read_bytes() == b"below"
    assert program.run("verify", "two.zip", "out", *options).code == 0
