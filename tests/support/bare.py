"""A machine with Python and make, and a checkout on it; both made of links to this one's."""

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from infra.bundle import ROOT
from tests.support.processes import run_process

# Of the shell and make, and what an activated environment asks for. No uv, node, npm, cdk or aws.
PROGRAMS = ("bash", "basename", "cat", "dirname", "env", "make", "rm", "sh", "touch", "uname")
NOT_OF_THE_CHECKOUT = {".git", "cdk.out", "archive.zip"}
# What make sets the tools up from. Copies that are old: a test must not set up anew the
# environment that it runs in.
DECLARATIONS = {"package.json", "package-lock.json", "pyproject.toml", "uv.lock"}


def make_checkout(folder: Path) -> Path:
    """Return a folder with links to all of the checkout, where a command may write its own."""
    folder.mkdir()
    for entry in ROOT.iterdir():
        if entry.name in DECLARATIONS:
            shutil.copyfile(entry, folder / entry.name)
            os.utime(folder / entry.name, (0, 0))
        elif entry.name not in NOT_OF_THE_CHECKOUT:
            (folder / entry.name).symlink_to(entry)
    return folder


def make_machine(folder: Path) -> dict[str, str]:
    """Return the variables of a shell that has Python, make and the shell's own tools.

    HOME is the real one, where jsii and uv keep their caches; AWS's files there are hidden.
    """
    folder.mkdir()
    for name in PROGRAMS:
        found = shutil.which(name)
        assert found is not None, name
        (folder / name).symlink_to(found)
    (folder / "python3").symlink_to(Path(sys.base_prefix) / "bin" / "python3")
    return {
        "PATH": str(folder),
        "HOME": os.environ["HOME"],
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "AWS_CONFIG_FILE": str(folder / "no-config"),
        "AWS_SHARED_CREDENTIALS_FILE": str(folder / "no-credentials"),
        "AWS_EC2_METADATA_DISABLED": "true",
    }


def run_program(
    words: Sequence[str | Path], variables: Mapping[str, str], folder: Path = ROOT
) -> str:
    """Run a program to its good end, with these variables and no others; return what it printed."""
    done = run_process(words, folder, variables)
    printed = (done.stdout + done.stderr).decode()
    assert done.returncode == 0, printed
    return printed
