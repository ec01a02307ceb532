"""Commands are loaded when they are used, and have what their help and their messages promise."""

import subprocess
import sys
from pathlib import Path

from s3unzip.cli.main import COMMANDS, load_command
from tests.support.zips import Entry, build

LOADED = """
import sys
from s3unzip.cli.main import main
try:
    main({words!r})
except SystemExit as end:
    print(end.code, *sys.modules, file=sys.stderr)
"""


def modules_of(*words: str) -> set[str]:
    """Return the modules that a command has loaded at its end."""
    done = subprocess.run(
        [sys.executable, "-c", LOADED.format(words=list(words))], capture_output=True, check=True
    )
    code, *modules = done.stderr.decode().splitlines()[-1].split()
    assert code == "0", done.stderr
    return set(modules)


def test_summaries_are_the_commands_own() -> None:
    """The list of commands says what the help of each command begins with."""
    found = {name: load_command(name).get_short_help_str(300) for name in COMMANDS}
    assert found == {name: summary for name, (_, summary) in COMMANDS.items()}


def test_a_command_loads_only_what_it_needs(tmp_path: Path) -> None:
    """The help shows no command's module; `ls` has neither the others nor unused libraries."""
    loaded = modules_of("--help")
    assert not [name for name in loaded if name.startswith("s3unzip.cli.arguments")]
    assert not loaded & {"rich", "boto3", "obstore", "numpy"}
    archive = tmp_path / "a.zip"
    archive.write_bytes(build(Entry("a.txt", b"1"), Entry("b.txt", b"2")))
    loaded = modules_of("ls", str(archive), "--json", "--include", "*.txt", "--limit", "1")
    assert not loaded & {"s3unzip.cli.runs", "s3unzip.cli.deployed"}
    assert not loaded & {"pydantic", "botocore.session", "boto3", "rich.table", "numpy"}


def test_all_but_the_functions_work_without_powertools() -> None:
    """It comes with the extra `functions`; neither commands nor the Python API import it."""
    script = """
import importlib, pkgutil, sys
sys.modules["aws_lambda_powertools"] = sys.modules["aws_xray_sdk"] = None
import s3unzip
for found in pkgutil.walk_packages(s3unzip.__path__, "s3unzip."):
    if not found.name.startswith("s3unzip.aws.") and not found.name.endswith("__main__"):
        importlib.import_module(found.name)
"""
    subprocess.run([sys.executable, "-c", script], check=True)
