"""``s3unzip``: the commands, what is said of mistyped ones, and how they end."""

from __future__ import annotations

import os
import re
import sys
import traceback
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn

import click

from s3unzip.cli.figures import printable
from s3unzip.cli.terminal import (
    OUTPUT_LOST,
    OutputLostError,
    OutputUnreadError,
    Stopping,
    drop_output,
)
from s3unzip.errors import ArchiveError, InterruptedRunError, S3UnzipError, ServiceFaultError
from s3unzip.version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

INTERNAL_ERROR = 70  # EX_SOFTWARE of sysexits.h
COMPLETION = "_S3UNZIP_COMPLETE"  # set by the script of a shell

# Where the class of a command is in this package, and the first sentence of its help: the list of
# commands loads none of them.
COMMANDS = {
    "run": ("run.Run", "Extract an archive, or several, on this machine."),
    "plan": ("plan.Plan", "Estimate a run: its work, time and cost; nothing is written."),
    "ls": ("look.List", "List an archive's members; reads only its directory."),
    "cat": ("look.Cat", "Write members to stdout, checked; reads only their ranges."),
    "test": (
        "look.Test",
        "Decode every member and check its CRC-32; nothing is written.",
    ),
    "verify": ("verify.Verify", "Compare the objects in DEST with the archive."),
    "watch": (
        "runs.Watch",
        "Follow a run until it ends; the exit code is its verdict's.",
    ),
    "runs": ("runs.Runs", "List runs, the latest first."),
    "show": ("runs.Show", "Print the report of a run; the exit code is its verdict's."),
    "resume": ("runs.Resume", "Continue a run: do the tasks that did not end."),
    "abort": ("runs.Abort", "Stop a run and drop its incomplete uploads."),
    "submit": ("deployed.Submit", "Queue archives that are already there."),
    "reconcile": (
        "deployed.Reconcile",
        "Find archives whose event or verdict never came.",
    ),
    "doctor": ("deployed.Doctor", "Check a deployed environment, and say what to do."),
}
# Words of other tools, and of earlier versions, for what is done here by another name.
OTHER_NAMES = {
    "help": "s3unzip --help",
    "version": "s3unzip --version",
    "extract": "s3unzip run",
    "unzip": "s3unzip run",
    "x": "s3unzip run",
    "list": "s3unzip ls",
    "l": "s3unzip ls",
    "t": "s3unzip test",
    "check": "s3unzip test",
    "status": "s3unzip show",
    "cancel": "s3unzip abort",
    "stop": "s3unzip abort",
    "redrive": "s3unzip resume",
    "retry": "s3unzip resume --failed",
    "simulate": "s3unzip plan",
    "backlog": "s3unzip submit, and s3unzip runs",
}
# Click's own words, and shorter ones.
PLAIN = (
    (r"'[^']*' is not a valid integer( range)?", "must be a whole number"),
    (r"'[^']*' is not a valid float( range)?", "must be a number"),
    (r"\S+ is not in the range x>=(\S+)", r"must be at least \1"),
    (r"\S+ is not in the range (\S+)<=x<=(\S+)", r"must be at least \1 and at most \2"),
)


@cache
def load_command(name: str) -> click.Command:
    """Return the command `name` of `COMMANDS`."""
    from s3unzip.cli.options import make_command

    module, _, kind = COMMANDS[name][0].partition(".")
    return make_command(name, getattr(import_module(f"s3unzip.cli.{module}"), kind))


class Program(click.Group):
    """The program: a group that loads a command when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands, the first ones that a user needs first."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of this name, None if there is none."""
        del ctx
        return load_command(cmd_name) if cmd_name in COMMANDS else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands with their summaries, none of them loaded."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])


def _print_help_alone() -> None:
    context = click.get_current_context()
    if context.invoked_subcommand is None:
        sys.stdout.write(f"{context.get_help()}\n")


def _print_version(context: click.Context, _: click.Parameter, asked: bool) -> None:
    if asked:
        sys.stdout.write(f"s3unzip {__version__}\n")
        context.exit()


PROGRAM = Program(
    "s3unzip",
    commands=dict.fromkeys(COMMANDS, click.Command(None)),  # for near names
    invoke_without_command=True,
    callback=_print_help_alone,
    help="Extract ZIP archives of any size from S3 to S3, in parallel, verified.",
    params=[
        click.Option(
            ["--version"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_print_version,
            help="Print the version and exit.",
        )
    ],
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command and exit with its code: errors are one line, never a traceback.

    Args:
        arguments: of the command line; None: the process's.
    """
    stopping = Stopping()
    try:
        with stopping.like_ctrl_c():
            code = _invoke(sys.argv[1:] if arguments is None else list(arguments))
        sys.stdout.flush()
        code = stopping.exit_code if stopping.heard else code
    except InterruptedRunError as stopped:
        _say(stopped)
        sys.exit(stopping.exit_code)
    except ArchiveError as error:
        _tell(error)
        sys.exit(error.exit_code)
    except S3UnzipError as error:
        _say(error)
        sys.exit(error.exit_code)
    except click.ClickException as error:
        _say(explain_mistake(error))
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, EOFError):
        _say("stopped")
        sys.exit(stopping.exit_code)
    except Exception as error:  # noqa: BLE001 - the command line's outermost edge
        sys.exit(_end_badly(error))
    sys.exit(code)


def _invoke(arguments: list[str]) -> int:
    """Run a command; return its exit code. Click's own `main` would print a line on Ctrl-C."""
    if COMPLETION in os.environ:
        PROGRAM.main(arguments, "s3unzip", COMPLETION)
    try:
        with PROGRAM.make_context("s3unzip", arguments) as context:
            code: Any = PROGRAM.invoke(context)
    except click.exceptions.Exit as end:
        return end.exit_code
    return code if isinstance(code, int) else 0


def explain_mistake(error: click.ClickException) -> str:
    """Return one line: what is wrong, and the command whose help shows what is right."""
    words = error.format_message().rstrip(".")
    if isinstance(error, click.exceptions.NoSuchCommand) and error.command_name in OTHER_NAMES:
        return f"No such command '{error.command_name}'; use: {OTHER_NAMES[error.command_name]}"
    for pattern, plain in PLAIN:
        words = re.sub(pattern, plain, words)
    context = getattr(error, "ctx", None)
    command = "s3unzip" if context is None else context.command_path
    return f"{words} (see {command} --help)"


def _end_badly(error: Exception) -> int:
    """Say what ended the command, if anything is wrong at all; return the exit code."""
    if isinstance(error, OutputUnreadError | BrokenPipeError):  # `s3unzip ls ... | head`
        drop_output()
        return 0
    if isinstance(error, OutputLostError):
        drop_output()
        _say(f"standard output: {error.strerror}; not all of it is written")
        return OUTPUT_LOST
    if isinstance(error, MemoryError):
        _say("no memory left: give fewer --workers, or raise the limit (ulimit -v)")
        return ServiceFaultError.exit_code
    if isinstance(error, OSError):
        from s3unzip.stores.files import is_known, translate_error

        if not is_known(error):
            return _end_unknown(error)
        refused = translate_error(error, str(error.filename or "this machine"))
        _say(refused)
        return refused.exit_code
    return _end_unknown(error)


def _end_unknown(error: Exception) -> int:
    """Say that there is a bug; return the exit code."""
    if os.environ.get("S3UNZIP_DEBUG"):
        traceback.print_exc()
    _say(f"internal error, please report it: {type(error).__name__}: {error}")
    return INTERNAL_ERROR


def _tell(error: ArchiveError) -> None:
    from s3unzip.cli.output import tell_finding

    sys.stderr.write(f"s3unzip: {tell_finding(error.finding)}\n")


def _say(message: object) -> None:
    sys.stderr.write(f"s3unzip: {printable(str(message))}\n")
