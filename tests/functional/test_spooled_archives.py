"""Archives from a pipe and from servers without ranges, at the real command line."""

from __future__ import annotations

import json
import os
import pty
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.encrypting import seal_zipcrypto
from tests.patience import HANG_SECONDS
from tests.processes import Program
from tests.servers import HttpServer, Reply
from tests.zips import DEFLATE, Entry, build

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers import Asked

ENTRIES = [Entry(f"d/{n}.txt", b"%d, " % n * 400, DEFLATE * (n % 2)) for n in range(9)]
CONTENTS = {str(entry.name): entry.content for entry in ENTRIES}
RAW = build(*ENTRIES)
WRONG, SECRET = {"crc32": 1}, b"open sesame"
DAMAGED = build(*ENTRIES, Entry("bad.txt", b"x" * 500, DEFLATE, local=WRONG, central=WRONG))


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """Return the command line; its temporary files are in a folder of its own."""
    program = Program(tmp_path)
    (tmp_path / "tmp").mkdir()
    program.variables["TMPDIR"] = str(tmp_path / "tmp")
    return program


def contents(folder: Path) -> dict[str, bytes]:
    """Return every file below a folder, by its path."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


class Whole:
    """A server that sends the whole archive whatever is asked, and notes what was."""

    def __init__(self, archive: bytes) -> None:
        self.archive = archive
        self.methods: list[str] = []
        self.etag = '"1"'

    def __call__(self, asked: Asked) -> Reply:
        """Answer one request."""
        self.methods.append(asked.method)
        return Reply(200, self.archive, {"ETag": self.etag})


def test_every_command_reads_a_pipe(program: Program) -> None:
    """`-` as SRC is the archive on standard input; nothing is left of the temporary file."""
    listed = program.run("ls", "-", "--json", stdin=RAW)
    assert [json.loads(line)["name"] for line in listed.out.splitlines()] == list(CONTENTS)
    assert program.run("cat", "-", "d/3.txt", stdin=RAW).out.encode() == CONTENTS["d/3.txt"]
    assert program.run("test", "-", "-w", "1", stdin=RAW).code == 0
    assert program.run("plan", "-", stdin=RAW).code == 0
    assert program.run("run", "-", "out", "--dry-run", stdin=RAW).code == 0
    ended = program.run("run", "-", "out", "-w", "2", stdin=RAW)
    assert ended.code == 0
    assert ended.err.startswith("COMPLETED  standard input -> ")
    assert contents(program.folder / "out" / "stdin") == CONTENTS
    assert program.run("verify", "-", "out", stdin=RAW).code == 0
    assert contents(program.folder / "tmp") == {}


def test_an_archive_that_is_no_archive(program: Program) -> None:
    """The words are those of any other source."""
    ended = program.run("ls", "-", stdin=b"<!DOCTYPE html><title>Sign in</title>")
    assert ended.code == 3
    assert "the first bytes look like" in ended.err
    assert "(no-eocd)" in ended.err


def test_the_temporary_file_is_limited(program: Program) -> None:
    """Above --max-spool the command ends, says what to do, and leaves nothing."""
    ended = program.run("ls", "-", "--max-spool", "1k", stdin=RAW)
    assert ended.code == 2
    assert "standard input: larger than 1,024 bytes" in ended.err
    assert "raise --max-spool" in ended.err
    assert program.run("ls", "-", "--max-spool", f"{len(RAW)}", stdin=RAW).code == 0
    assert contents(program.folder / "tmp") == {}


def test_a_full_disk_is_told(program: Program) -> None:
    """Plain words name the folder and TMPDIR; `ulimit -f` limits every file of the process."""
    command = shlex.join([sys.executable, "-m", "s3unzip.cli", "ls", "-"])
    done = subprocess.run(
        ["bash", "-c", f"ulimit -f 1; {command}"],
        input=RAW * 20,
        capture_output=True,
        env=os.environ | program.variables | {"PYTHONDONTWRITEBYTECODE": "1"},
        timeout=HANG_SECONDS,
        check=False,
    )
    said = done.stderr.decode()
    assert done.returncode == 6, said
    assert f"{program.folder}/tmp: no space left after" in said
    assert "set TMPDIR" in said


def test_a_terminal_is_refused(program: Program) -> None:
    """Nobody types an archive: the command says so instead of waiting."""
    ours, theirs = pty.openpty()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "s3unzip.cli", "ls", "-"],
            stdin=theirs,
            capture_output=True,
            env=os.environ | program.variables,
            timeout=HANG_SECONDS,
            check=False,
        )
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.returncode == 2
    assert b"standard input is a terminal; pipe an archive into s3unzip" in done.stderr


def test_nothing_on_standard_input(program: Program) -> None:
    """An empty pipe, as of a `curl` that failed, and a closed input are told as such."""
    said = "-: nothing came on standard input; pipe an archive into s3unzip"
    ended = program.run("run", "-", "out", stdin=b"")
    assert (ended.code, ended.err) == (2, f"s3unzip: {said}\n")
    command = shlex.join([sys.executable, "-m", "s3unzip.cli", "ls", "-"])
    done = subprocess.run(
        ["bash", "-c", f"{command} <&-"],
        capture_output=True,
        env=os.environ | program.variables,
        timeout=HANG_SECONDS,
        check=False,
    )
    assert done.returncode == 2
    assert said.encode() in done.stderr


def test_a_run_from_a_pipe_cannot_be_redriven(program: Program) -> None:
    """`retry` and `redrive` say that the archive is gone, and which command continues."""
    assert program.run("run", "-", "out", "-w", "1", stdin=DAMAGED).code == 1
    for command in ("retry", "redrive"):
        ended = program.run(command, "latest", "-w", "1")
        assert ended.code == 2
        assert "its archive came from a pipe and is gone" in ended.err
        assert f"COMMAND | s3unzip run - {program.folder}/out/" in ended.err
    again = program.run("run", "-", "out", "--on-conflict", "skip-unchanged", stdin=DAMAGED)
    assert "9 unchanged" in again.err


def test_a_killed_command_leaves_no_file(program: Program) -> None:
    """The temporary file has no name, so nothing is left even without a chance to delete it."""
    with subprocess.Popen(
        [sys.executable, "-m", "s3unzip.cli", "ls", "-"],
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=os.environ | program.variables,
    ) as process:
        assert process.stdin is not None
        process.stdin.write(bytes(4 * 1024**2))  # more than a pipe holds: some of it is read
        process.stdin.flush()
        process.kill()
    assert contents(program.folder / "tmp") == {}


def test_a_server_without_ranges(program: Program) -> None:
    """Only with --allow download it may send the whole archive, once; the message says so."""
    server = Whole(RAW)
    with HttpServer(server) as web:
        refused = program.run("ls", f"{web.url}/a.zip")
        assert refused.code == 6
        assert "does not answer range requests" in refused.err
        assert "add --allow download" in refused.err
        server.methods.clear()
        ended = program.run("run", f"{web.url}/a.zip", "out", "--allow", "download", "-w", "2")
        assert ended.code == 0
        assert server.methods == ["GET"]
        assert f"downloading all of it ({len(RAW):,} bytes)" in ended.err
        assert contents(program.folder / "out" / "a") == CONTENTS
        server.methods.clear()
        words = ("ls", f"{web.url}/a.zip", "--allow", "download", "--max-spool", "1k")
        assert "larger than 1,024 bytes" in program.run(*words).err
        assert server.methods == ["GET"]
    assert contents(program.folder / "tmp") == {}


def test_a_download_can_be_retried(program: Program) -> None:
    """`retry` remembers --allow download, and needs the same version of the archive."""
    server = Whole(build(*ENTRIES, seal_zipcrypto(Entry("secret.txt", b"s" * 500), SECRET)))
    (program.folder / "password").write_bytes(b"wrong")
    given = ("--password-file", "password", "-w", "1")
    retry = ("retry", "latest", *given)
    with HttpServer(server) as web:
        url = f"{web.url}/a.zip"
        assert program.run("run", url, "out", "--allow", "download", *given).code == 1
        (program.folder / "password").write_bytes(SECRET)
        server.etag = '"2"'
        assert program.run(*retry).code == 4
        server.etag = '"1"'
        ended = program.run(*retry)
        assert ended.code == 0, ended.err
    assert (program.folder / "out/a/secret.txt").read_bytes() == b"s" * 500


def test_the_limit_of_the_copy_is_remembered(program: Program) -> None:
    """`redrive` and `retry` take --max-spool of the run; a typed one wins."""
    server = Whole(build(*ENTRIES, seal_zipcrypto(Entry("secret.txt", b"s" * 500), SECRET)))
    (program.folder / "password").write_bytes(b"wrong")
    given = ("--password-file", "password", "-w", "1")
    with HttpServer(server) as web:
        words = ("run", f"{web.url}/a.zip", "out", "--allow", "download", *given)
        assert program.run(*words, "--max-spool", "64k").code == 1
        server.archive = bytes(65 * 1024)
        again = program.run("retry", "latest", *given)
        assert again.code == 2
        assert "larger than 65,536 bytes" in again.err
        typed = program.run("retry", "latest", *given, "--max-spool", "32k")
        assert "larger than 32,768 bytes" in typed.err


def test_the_next_command_has_the_options_of_the_run(program: Program) -> None:
    """An archive from a pipe is piped again with the same options and the same limit."""
    secret = build(*ENTRIES, seal_zipcrypto(Entry("secret.txt", b"s" * 500), SECRET))
    words = ("--exclude", "nothing*", "--max-spool", "2g", "-w", "1")
    ended = program.run("run", "-", "out", *words, stdin=secret)
    assert ended.code == 1
    assert (
        f"next: COMMAND | s3unzip run - {program.folder}/out/ --on-conflict skip-unchanged "
        "--exclude 'nothing*' --max-spool 2147483648 --password-file FILE"
    ) in ended.err
