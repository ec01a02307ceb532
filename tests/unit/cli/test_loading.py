"""Commands are loaded when they are used, and plain values need no Pydantic."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from typer.main import get_command

from s3unzip.cli.loading import SOURCES
from s3unzip.cli.main import app, main
from tests.zips import Entry, build

if TYPE_CHECKING:
    from pathlib import Path

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


@pytest.fixture
def archive(tmp_path: Path) -> str:
    """Return the path of an archive."""
    path = tmp_path / "a.zip"
    path.write_bytes(build(Entry("a.txt", b"1"), Entry("b.txt", b"2")))
    return str(path)


def test_summaries_are_the_commands_own() -> None:
    """The list of commands says what the help of each command begins with."""
    root: Any = get_command(app)
    names = root.list_commands(None)
    found = {name: root.get_command(None, name).get_short_help_str(300) for name in names}
    assert found == {name: source.summary for name, source in SOURCES.items()}
    assert root.get_command(None, "unknown") is None


def test_the_help_loads_no_command() -> None:
    """The list of commands is shown without any of them."""
    loaded = modules_of("--help")
    assert not [name for name in loaded if name.startswith("s3unzip.cli.commands.")]
    assert "pydantic" not in loaded


def test_a_command_loads_neither_others_nor_pydantic(archive: str) -> None:
    """`ls` with text, a switch and a glob loads what it needs."""
    loaded = modules_of("ls", archive, "--json", "--include", "*.txt", "--color", "never")
    commands = {name for name in loaded if name.startswith("s3unzip.cli.commands.")}
    assert commands == {"s3unzip.cli.commands.ls_and_cat"}
    assert not loaded & {"pydantic", "botocore.session", "boto3", "rich.table", "numpy"}


def test_whole_numbers_need_no_pydantic(archive: str) -> None:
    """A number within its limits is taken as it is."""
    assert "pydantic" not in modules_of("ls", archive, "--limit", "1")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--limit", "0"), "must be at least 1"),
        (("--limit", "1.5"), "must be a whole number"),
        (("--color", "pink"), "'pink' is not one of 'auto', 'always', 'never'"),
        (("--allow", "everything"), "is not one of 'other-hosts', 'private-addresses'"),
    ],
)
def test_wrong_values_are_typer_s(
    words: tuple[str, ...], said: str, archive: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is not plain is left to Typer, whose message names the option."""
    with pytest.raises(SystemExit) as end:
        main(["ls", archive, *words])
    message = capsys.readouterr().err
    assert end.value.code == 2
    assert said in message
    assert words[0] in message


def test_a_repeated_option_of_another_type(archive: str) -> None:
    """A list of members of an enumeration goes the way of Typer."""
    with pytest.raises(SystemExit) as end:
        main(["ls", archive, "--allow", "other-hosts", "--allow", "private-addresses"])
    assert end.value.code == 0
