"""The commands, each imported when it is used: ``s3unzip ls`` does not load ``doctor``.

The summaries stand here too, so that the list of commands loads none of them. A test holds them
against the commands' own help.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

import typer
from typer.core import TyperGroup
from typer.main import get_group

from s3unzip.cli.options.groups import with_groups
from s3unzip.cli.options.plain_values import PlainCommand, accept_plain_values


class CommandSource(NamedTuple):
    """Where a command comes from."""

    function: str  # in `s3unzip.cli.commands`: its module and its name
    summary: str  # the first sentence of the command's help


SOURCES = {
    "run": CommandSource("run.run_command", "Extract an archive, or several, on this machine."),
    "test": CommandSource(
        "soundness.check_archive", "Decode every member and check its CRC-32; nothing is written."
    ),
    "plan": CommandSource(
        "plan.plan_command", "Estimate a run: its work, time and cost; nothing is written."
    ),
    "verify": CommandSource(
        "verify.verify_command", "Compare the objects in DEST with the archive."
    ),
    "ls": CommandSource(
        "ls_and_cat.list_members", "List an archive's members; reads only its directory."
    ),
    "cat": CommandSource(
        "ls_and_cat.print_members", "Write members to stdout, checked; reads only their ranges."
    ),
    "watch": CommandSource(
        "watch.watch_run", "Follow a run until it ends; the exit code is its verdict's."
    ),
    "runs": CommandSource("operate.list_runs", "List runs, the latest first."),
    "show": CommandSource(
        "operate.show_run", "Print the report of a run; the exit code is its verdict's."
    ),
    "redrive": CommandSource(
        "operate.redrive_run", "Continue a run: do the tasks that did not end."
    ),
    "retry": CommandSource("operate.retry_run", "Try the failed members of a run again."),
    "abort": CommandSource("operate.abort_run", "Stop a run and drop its incomplete uploads."),
    "submit": CommandSource("submit.submit_command", "Queue archives that are already there."),
    "reconcile": CommandSource(
        "reconcile.reconcile_command", "Find archives whose event or verdict never came."
    ),
    "doctor": CommandSource(
        "doctor.doctor_command", "Check a deployed environment, and say what to do."
    ),
}


@cache
def _load(name: str) -> Any:
    """Return the command `name` of `SOURCES`."""
    module, _, attribute = SOURCES[name].function.partition(".")
    holder = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False)
    does = getattr(import_module(f"s3unzip.cli.commands.{module}"), attribute)
    holder.command(name, cls=PlainCommand)(with_groups(does))
    return get_group(holder).commands[name]


class LazyGroup(TyperGroup):
    """The program: a group that loads a command when it is asked for."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands: dict[str, Any] = dict.fromkeys(SOURCES)  # Typer lists and suggests the names

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the command of this name, None if there is none."""
        del ctx
        return _load(cmd_name) if cmd_name in SOURCES else None

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters of the program, its help option included."""
        return accept_plain_values(super().get_params(ctx))

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """List the commands with their summaries, none of them loaded."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, source.summary) for name, source in SOURCES.items()])
