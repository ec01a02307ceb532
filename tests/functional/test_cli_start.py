"""The first commands that a new user tries: no arguments, help, the version, completion."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import s3unzip

COMMAND = [sys.executable, "-m", "s3unzip.cli"]


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


def test_the_version() -> None:
    """One line on stdout, alone and in front of other words."""
    expected = f"s3unzip {s3unzip.__version__}\n"
    for words in (["--version"], ["--version", "ls"]):
        done = start(*words)
        assert (done.returncode, done.stdout, done.stderr) == (0, expected, "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_printed(shell: str) -> None:
    """The script names the command, not the way in which Python was started."""
    done = start("--show-completion", shell)
    assert done.returncode == 0
    assert "_S3UNZIP_COMPLETE" in done.stdout


def test_bash_completes_commands() -> None:
    """What the script calls answers with the commands that begin so."""
    environment = {
        **os.environ,
        "_S3UNZIP_COMPLETE": "complete_bash",
        "COMP_WORDS": "s3unzip re",
        "COMP_CWORD": "1",
    }
    done = subprocess.run(COMMAND, capture_output=True, text=True, env=environment, check=False)
    assert done.stdout.split() == ["redrive", "retry", "reconcile"]


def test_an_unknown_command_names_the_nearest() -> None:
    """One line, exit code 2."""
    done = start("rum", "a.zip")
    assert done.returncode == 2
    assert "No such command 'rum'. Did you mean 'run'?" in done.stderr
    assert done.stderr.count("\n") == 1
