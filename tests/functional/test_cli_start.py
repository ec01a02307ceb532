"""The first commands that a new user tries: no arguments, help, the version, completion."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import s3unzip
from tests.patience import HANG_SECONDS
from tests.servers import Asked, HttpServer, Reply
from tests.zips import Entry, build

COMMAND = [sys.executable, "-m", "s3unzip.cli"]
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}


def start(*words: str, columns: int = 80) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process of its own."""
    environment = {**os.environ, "COLUMNS": str(columns)}
    return subprocess.run(
        [*COMMAND, *words], capture_output=True, text=True, env=environment, check=False
    )


def test_no_arguments_show_the_help() -> None:
    """On stdout, over several lines, and with exit code 0; the same as --help."""
    done = start()
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Usage: s3unzip")
    assert len(done.stdout.splitlines()) > 20
    assert done.stdout == start("--help").stdout


def test_the_help_cuts_no_summary() -> None:
    """In a terminal of 80 columns each command shows its complete summary."""
    listed = start("--help").stdout.partition("Commands:")[2].splitlines()
    assert len([line for line in listed if line.endswith(".")]) == len(
        [line for line in listed if line]
    )
    assert "..." not in "".join(listed)


@pytest.mark.parametrize(
    ("command", "usage"),
    [
        ("run", "[OPTIONS] SRC... DEST"),
        ("ls", "[OPTIONS] SRC [MEMBER]..."),
        ("cat", "[OPTIONS] SRC MEMBER..."),
        ("show", "[OPTIONS] [RUN]"),
    ],
)
def test_the_help_speaks_of_values_not_of_types(command: str, usage: str) -> None:
    """A number is N, a text TEXT, a choice is spelled out; arguments are named as in manuals."""
    lines = start(command, "--help", columns=100).stdout.splitlines()
    assert lines[0] == f"Usage: s3unzip {command} {usage}"
    text = "\n".join(lines)
    for odd in ("INTEGER", "FLOAT", "PATH", "{"):
        assert odd not in text.replace("{archive_stem}/{member}", ""), odd
    assert command != "run" or "-w, --workers N " in text
    assert command != "run" or "--on-conflict <overwrite|skip-unchanged|never>" in text


def test_a_narrow_terminal_cuts_no_cost(tmp_path: Path) -> None:
    """At 40 columns every price of an estimate has all of its digits."""
    (tmp_path / "a.zip").write_bytes(build(Entry("a.txt", b"a")))
    done = start("plan", str(tmp_path / "a.zip"), "--on", "aws", columns=40)
    assert done.returncode == 0
    costs = done.stdout.partition("dollars ")[2]
    assert "$0.0" in costs
    assert "\u2026" not in costs


def test_the_version() -> None:
    """One line on stdout, alone and in front of other words."""
    expected = f"s3unzip {s3unzip.__version__}\n"
    for words in (["--version"], ["--version", "ls"]):
        done = start(*words)
        assert (done.returncode, done.stdout, done.stderr) == (0, expected, "")


@pytest.mark.parametrize(
    ("shell", "line"),
    [("bash", "complete -o nosort"), ("zsh", "#compdef s3unzip"), ("fish", "complete --no-files")],
)
def test_completion_is_printed(shell: str, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The script is for the shell that is named, and calls the program as a user types it."""
    monkeypatch.setenv("_S3UNZIP_COMPLETE", f"{shell}_source")
    done = start()
    assert done.returncode == 0
    assert line in done.stdout
    assert "_S3UNZIP_COMPLETE" in done.stdout


def test_bash_completes_commands() -> None:
    """What the script calls answers with the commands that begin so."""
    environment = {
        **os.environ,
        "_S3UNZIP_COMPLETE": "bash_complete",
        "COMP_WORDS": "s3unzip re",
        "COMP_CWORD": "1",
    }
    done = subprocess.run(COMMAND, capture_output=True, text=True, env=environment, check=False)
    assert done.stdout.split() == ["plain,resume", "plain,reconcile"]


def test_an_unknown_command_names_the_nearest() -> None:
    """One line, exit code 2."""
    done = start("rum", "a.zip")
    assert done.returncode == 2
    assert "No such command 'rum'. (Did you mean one of: 'resume', 'run'?)" in done.stderr
    assert done.stderr.count("\n") == 1


def test_ctrl_c_while_the_program_is_loaded() -> None:
    """It prints one line and exits with 130, also before the command line is imported."""
    code = """
import sys
class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == "click":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupt())
sys.argv = ["s3unzip", "ls", "a.zip"]
from s3unzip.cli.__main__ import main
main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "s3unzip: stopped\n")


@pytest.mark.parametrize("words", [["run", "{url}/a.zip", "out"], ["ls", "{url}/a.zip"]])
def test_ctrl_c_before_the_directory_is_read(words: list[str], tmp_path: Path) -> None:
    """The server does not answer yet; the program prints one line and ends."""
    stop_while_asked(words, tmp_path)
    assert not (tmp_path / "out").exists()


def stop_while_asked(words: list[str], folder: Path) -> None:
    """Interrupt a command that waits for a server; `{url}` in its words is the server's."""
    asked, go_on = threading.Event(), threading.Event()

    def answer(_: Asked) -> Reply:
        asked.set()
        go_on.wait(100)
        return Reply(404, b"")

    with HttpServer(answer) as server:
        process = subprocess.Popen(
            [*COMMAND, *(word.format(url=server.url) for word in words)],
            stderr=subprocess.PIPE,
            text=True,
            cwd=folder,
            env={**os.environ, **CREDENTIALS, "S3UNZIP_HOME": str(folder / "runs")},
        )
        assert asked.wait(HANG_SECONDS)
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=HANG_SECONDS)
        go_on.set()
    assert (process.returncode, told) == (130, "s3unzip: stopped\n")
