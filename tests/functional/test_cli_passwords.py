"""Passwords, gzip and nested archives on the command line, with real worker processes."""

import gzip
import os
from pathlib import Path

import pytest

from tests.encrypting import seal_aes, seal_zipcrypto
from tests.processes import run_command
from tests.zips import DEFLATE, Entry, build

SECRET = b"never-to-be-seen-7f3a"
TEXT = b"text " * 400


class Shell:
    """A folder with an archive, a password file, and runs of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        inner = build(seal_aes(Entry("deep.txt", b"deep"), SECRET))
        archive = build(
            seal_zipcrypto(Entry("a.txt", TEXT, DEFLATE), SECRET),
            seal_aes(Entry("b.txt", TEXT, DEFLATE), SECRET),
            seal_aes(Entry("inner.zip", inner, DEFLATE), SECRET, version=1),
        )
        (folder / "a.zip").write_bytes(archive)
        (folder / "password").write_bytes(SECRET + b"\n")
        (folder / "wrong").write_bytes(b"hunter2")
        self.said = b""

    def run(self, *arguments: str) -> tuple[int, bytes]:
        """Run the command there; return its exit code and stdout."""
        variables = {**os.environ, "S3UNZIP_HOME": str(self.folder / "home"), "S3UNZIP_DEBUG": "1"}
        done = run_command(arguments, self.folder, variables)
        self.said += (done.stdout + done.stderr).encode()
        return done.returncode, done.stdout.encode()


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """A folder of its own."""
    return Shell(tmp_path)


def test_run_redrive_cat(shell: Shell) -> None:
    """All commands that read members take the file; what they say and keep has no password."""
    given = ("--password-file", "password")
    assert shell.run("run", "a.zip", "out", "--nested", "1", "--json", *given)[0] == 0
    assert (shell.folder / "out/a/a.txt").read_bytes() == TEXT
    assert (shell.folder / "out/a/inner/deep.txt").read_bytes() == b"deep"
    assert shell.run("cat", "a.zip", "b.txt", *given) == (0, TEXT)
    assert shell.run("cat", "a.zip", "b.txt", "--password-file", "wrong")[0] == 1
    assert shell.run("cat", "a.zip", "b.txt")[0] == 1
    assert shell.run("run", "a.zip", "other", "--password-file", "wrong")[0] == 1
    for report in (shell.folder / "home").rglob("report.json"):
        report.unlink()  # as if no run had ended: a finished one has nothing to redrive
    assert shell.run("resume", "latest")[0] == 2
    assert shell.run("run", "a.zip", "other", "--password-file", "wrong")[0] == 1
    assert b"wrong-password" in shell.said
    kept = [path for path in (shell.folder / "home").rglob("*") if path.is_file()]
    assert any(path.name == "report.json" for path in kept)
    for text in (shell.said, *(path.read_bytes() for path in kept)):
        assert SECRET not in text
        assert b"hunter2" not in text


def test_gzip(shell: Shell) -> None:
    """A folder gets gzip files, which verify; an encoding it cannot keep is refused."""
    given = ("--password-file", "password", "--as-gzip", "suffix")
    assert shell.run("run", "a.zip", "out", *given)[0] == 0
    assert gzip.decompress((shell.folder / "out/a/b.txt.gz").read_bytes()) == TEXT
    assert shell.run("verify", "a.zip", "out", "--deep", *given)[0] == 0
    assert shell.run("run", "a.zip", "out", "--as-gzip", "encoding")[0] == 2
    assert shell.run("run", "a.zip", "out", "--nested", "1", *given)[0] == 2
