"""The ``s3unzip`` program: lists, starts and ends commands, and gives advice on typos."""

import os
import re
import sys
import threading
import traceback
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

import click

from s3unzip.cli.terminal import (
    OUTPUT_LOST,
    OutputLostError,
    Stopping,
    drop_output,
    finish_output,
)
from s3unzip.printable import printable
from s3unzip.version import __version__

INTERNAL_ERROR = 70  # EX_SOFTWARE in sysexits.h
COMPLETION = "_S3UNZIP_COMPLETE"  # set by a shell's completion script

# For each command, its module and the first sentence of its help. The list of commands is printed
# without loading any of these modules.
COMMANDS = {
    "run": ("run", "Extract one or more archives on this machine."),
    "plan": ("plan", "Estimate a run: its work, time and cost; nothing is written."),
    "ls": ("look", "List an archive's members; only its directory is read."),
    "cat": ("look", "Write members to stdout and check them; only their bytes are read."),
    "test": ("look", "Decode every member and check its CRC-32; nothing is written."),
    "verify": ("look", "Compare the objects in DEST with the archive."),
    "watch": ("runs", "Follow a run until it ends; exit with the code of its verdict."),
    "runs": ("runs", "List runs, the latest first."),
    "show": ("runs", "Print the report of a run; exit with the code of its verdict."),
    "resume": ("runs", "Continue a run: complete its remaining tasks."),
    "abort": ("runs", "Stop a run and drop its incomplete uploads."),
    "submit": ("deployed", "Queue archives that are already in the ingest bucket."),
    "doctor": ("deployed", "Check a deployed environment, and advise how to fix problems."),
}
# Commands of other tools and of earlier versions, mapped to the equivalent commands here.
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
    "reconcile": "s3unzip submit --missing",
}
# Patterns for click's messages, mapped to plainer wording.
PLAIN_WORDS = (
    (r"'[^']*' is not a valid integer( range)?", "must be a whole number"),
    (r"'[^']*' is not a valid float( range)?", "must be a number"),
    (r"\S+ is not in the range x>=(\S+)", r"must be at least \1"),
    (r"\S+ is not in the range (\S+)<=x<=(\S+)", r"must be at least \1 and at most \2"),
)


def load_command(name: str) -> click.Command:
    """Return the command `name` of `COMMANDS`."""
    command: click.Command = getattr(import_module(f"s3unzip.cli.{COMMANDS[name][0]}"), name)
    return command


class _Program(click.Group):
    """A group of commands that are loaded on their first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - required by click
        """Return the names in the order of the help: shells complete them in this order."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        return load_command(cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the commands with their summaries; click's own method would load every command."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])


@click.group(
    "s3unzip",
    cls=_Program,
    # For a mistyped command, click suggests one of these names. `_Program` loads the real commands.
    commands=dict.fromkeys(COMMANDS, click.Command(None)),
    invoke_without_command=True,
    help="Extract ZIP archives of any size from S3 to S3, in parallel, verified.",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(
    __version__, message="s3unzip %(version)s", help="Print the version and exit."
)
@click.pass_context
def PROGRAM(context: click.Context) -> None:  # noqa: N802 - a constant
    """Print the help if no command is given."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def main(arguments: Sequence[str]) -> NoReturn:
    """Run a command and exit with its code. An error is printed as one line, not as a traceback."""
    if threading.current_thread() is not threading.main_thread():
        sys.exit(
            _print_error(
                "a command must run in the main thread, to handle signals; in other threads, call "
                "s3unzip.extract, open_archive or verify",
                click.UsageError.exit_code,
            )
        )
    stopping = Stopping()
    code = 0  # used if the reader of the output exits before the command returns an exit code
    try:
        with stopping.like_ctrl_c():
            code = _invoke(list(arguments))
        finish_output()
    except (KeyboardInterrupt, EOFError):
        code = _print_error("stopped", stopping.exit_code)
    except BrokenPipeError:  # the reader of a pipe has exited, as in `s3unzip ls ... | head`
        drop_output()
    except Exception as error:  # noqa: BLE001 - the outermost level of the command line
        code = _report_error(error, stopping)
    sys.exit(code)


def _invoke(arguments: list[str]) -> int:
    """Run a command; return its exit code.

    This replaces click's own `main`, which prints a different message on Ctrl-C.
    """
    if len(arguments) > 1 and arguments[0] == "help" and arguments[1] in COMMANDS:
        arguments = [arguments[1], "--help"]
    # A shell's completion script sets `COMPLETION` and COMP_WORDS. A user who asks for this script
    # sets `COMPLETION` to a value that ends in `_source`. Otherwise, `COMPLETION` was set by
    # mistake.
    if COMPLETION in os.environ and (
        "COMP_WORDS" in os.environ or os.environ[COMPLETION].endswith("_source")
    ):
        PROGRAM.main(arguments, "s3unzip", COMPLETION)  # prints completions and exits
    try:
        with PROGRAM.make_context("s3unzip", arguments) as context:
            return int(PROGRAM.invoke(context) or 0)  # None if only the help was printed
    except click.exceptions.Exit as end:
        return end.exit_code


def explain_mistake(error: click.ClickException) -> str:
    """Return one line: the mistake, and the command to type or the command that shows help."""
    if isinstance(error, click.exceptions.NoSuchCommand):
        name = error.command_name
        advice = OTHER_NAMES.get(name)
        if "://" in name or name.lower().endswith(".zip"):  # the user left out `run` or `ls`
            from shlex import quote

            advice = f"s3unzip run {quote(name)} DEST, or s3unzip ls {quote(name)}"
        if advice is not None:
            return f"No such command '{name}'; use: {advice}"
    message = error.format_message().rstrip(".")
    for pattern, plain_words in PLAIN_WORDS:
        message = re.sub(pattern, plain_words, message)
    command = "s3unzip"
    if isinstance(error, click.UsageError) and error.ctx is not None:
        command = error.ctx.command_path
    if isinstance(error, click.exceptions.NoSuchOption) and command == "s3unzip":
        message += "; options follow the command"
    return f"{message} (see {command} --help)"


def _report_error(error: Exception, stopping: Stopping) -> int:
    from s3unzip import errors

    match error:
        case OutputLostError():
            drop_output()
            return _print_error(
                f"standard output: {error.strerror}; the output is incomplete", OUTPUT_LOST
            )
        case click.ClickException():
            return _print_error(explain_mistake(error), error.exit_code)
        case errors.ArchiveError():
            from s3unzip.cli.output import describe_finding

            sys.stderr.write(f"s3unzip: {describe_finding(error.finding)}\n")
            return error.exit_code
        case errors.InterruptedRunError():
            return _print_error(error, stopping.exit_code)
        case errors.S3UnzipError():
            return _print_error(error, error.exit_code)
        case _:
            return _report_foreign_error(error)


def _report_foreign_error(error: Exception) -> int:
    """Print an error of the operating system or a message about a bug; return the exit code."""
    from s3unzip import errors
    from s3unzip.stores.files import KINDS, translate_error

    if isinstance(error, OSError) and error.errno in KINDS:
        failure = translate_error(error, str(error.filename or "this machine"))
        return _print_error(failure, failure.exit_code)
    if errors.is_out_of_memory(error):
        return _print_error(
            "out of memory or threads: use fewer --workers, or raise the limit "
            "(ulimit -v, or -u for threads)",
            errors.ServiceFaultError.exit_code,
        )
    if os.environ.get("S3UNZIP_DEBUG"):
        traceback.print_exc()
    return _print_error(
        f"internal error, please report it: {type(error).__name__}: {error}", INTERNAL_ERROR
    )


def _print_error(message: object, code: int) -> int:
    sys.stderr.write(f"s3unzip: {printable(str(message))}\n")
    return code
