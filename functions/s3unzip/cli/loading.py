"""The commands, each imported when it is used: ``s3unzip ls`` does not load ``doctor``.

The summaries stand here too, so that the list of commands loads none of them. A test holds them
against the commands' own help.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import typer
from typer.core import TyperGroup
from typer.main import get_group

from s3unzip.cli.options.plain_values import PlainCommand, accept_plain_values

if TYPE_CHECKING:
    from collections.abc import Iterator


class CommandSource(NamedTuple):
    """Where a command comes from."""

    module: str  # of `s3unzip.cli.commands`; its `register` adds the command
    summary: str  # the first sentence of the command's help


SOURCES = {
    "run": CommandSource("run", "Extract an archive, or several, on this machine."),
    "test": CommandSource(
        "soundness", "Decode every member and check its CRC-32; nothing is written."
    ),
    "plan": CommandSource("plan", "Forecast a run: its work, time and cost; nothing is written."),
    "simulate": CommandSource(
        "plan", "Forecast the extraction of an archive that you only imagine."
    ),
    "verify": CommandSource("verify", "Compare the objects in DEST with the archive."),
    "ls": CommandSource("archive", "List an archive's members; reads only its directory."),
    "cat": CommandSource("archive", "Write members to stdout, checked; reads only their ranges."),
    "watch": CommandSource("watch", "Follow a run until it ends; the exit code is its verdict's."),
    "runs": CommandSource("operate", "List runs, the latest first."),
    "show": CommandSource("operate", "Print the report of a run; the exit code is its verdict's."),
    "redrive": CommandSource("operate", "Continue a run: do the tasks that did not end."),
    "retry": CommandSource("operate", "Try the failed members of a run again."),
    "abort": CommandSource("operate", "Stop a run and drop its incomplete uploads."),
    "reconcile": CommandSource("reconcile", "Find archives whose event or verdict never came."),
    "doctor": CommandSource("doctor", "Check a deployed environment, and say what to do."),
}


class LazyCommands(MutableMapping[str, Any]):
    """Commands by name, in the order of `SOURCES`; each is loaded when it is asked for."""

    def __init__(self) -> None:
        self._loaded: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._loaded:
            self._load(SOURCES[name].module)
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(SOURCES)

    def __len__(self) -> int:
        return len(SOURCES)

    def __contains__(self, name: object) -> bool:
        return name in SOURCES

    def __setitem__(self, name: str, command: Any) -> None:
        self._loaded[name] = command

    def __delitem__(self, name: str) -> None:
        del self._loaded[name]

    def _load(self, module: str) -> None:
        """Load the commands of one module."""
        holder = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False)
        import_module(f"s3unzip.cli.commands.{module}").register(holder)
        for command in holder.registered_commands:
            command.cls = PlainCommand
        self._loaded.update(get_group(holder).commands)


class LazyGroup(TyperGroup):
    """The program: a group whose commands are `LazyCommands`."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = LazyCommands()

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters of the program, its help option included."""
        return accept_plain_values(super().get_params(ctx))

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """List the commands with their summaries, none of them loaded."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, source.summary) for name, source in SOURCES.items()])
