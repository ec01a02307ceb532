"""``s3unzip``: the commands, and how they end."""

from __future__ import annotations

import os
import sys
import traceback
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
from typer.exceptions import TyperException

from s3unzip.cli.loading import LazyGroup
from s3unzip.cli.terminal.figures import printable
from s3unzip.cli.terminal.signals import Stopping
from s3unzip.cli.terminal.streams import (
    OUTPUT_LOST,
    OutputLostError,
    OutputUnreadError,
    drop_output,
)
from s3unzip.errors import (
    ArchiveError,
    InterruptedRunError,
    S3UnzipError,
    ServiceFaultError,
)
from s3unzip.version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence

INTERNAL_ERROR = 70  # EX_SOFTWARE of sysexits.h
INTERRUPTED = 130  # what Typer makes of a KeyboardInterrupt; no command returns it

app = typer.Typer(
    name="s3unzip",
    cls=LazyGroup,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


@app.callback(invoke_without_command=True)
def start(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True)
    ] = False,
) -> None:
    """Extract ZIP archives of any size from S3 to S3, in parallel, verified."""
    if version:
        sys.stdout.write(f"s3unzip {__version__}\n")
        raise typer.Exit
    if context.invoked_subcommand is None:
        sys.stdout.write(f"{context.get_help()}\n")


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command and exit with its code: errors are one line, never a traceback.

    Args:
        arguments: of the command line; None: the process's.
    """
    stopping = Stopping()
    try:
        with stopping.like_ctrl_c():
            code = app(args=arguments, prog_name="s3unzip", standalone_mode=False)
        sys.stdout.flush()
        code = _end(code, stopping)
    except InterruptedRunError as stopped:
        _say(stopped)
        sys.exit(stopping.exit_code)
    except ArchiveError as error:
        _tell(error)
        sys.exit(error.exit_code)
    except S3UnzipError as error:
        _say(error)
        sys.exit(error.exit_code)
    except TyperException as error:
        from s3unzip.cli.mistyped import explain_mistake

        _say(explain_mistake(error))
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        _say("stopped")
        sys.exit(stopping.exit_code)
    except Exception as error:  # noqa: BLE001 - the command line's outermost edge
        sys.exit(_end_badly(error))
    sys.exit(code)


def _end(code: object, stopping: Stopping) -> int:
    """Return the exit code of a command that returned `code`; say if it was stopped."""
    if code == INTERRUPTED:
        _say("stopped")
    if stopping.heard:
        return stopping.exit_code
    return code if isinstance(code, int) else 0


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
        _say("no memory left: give fewer --workers or --puts, or raise the limit (ulimit -v)")
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
    from s3unzip.cli.terminal.output import tell_finding

    sys.stderr.write(f"s3unzip: {tell_finding(error.finding)}\n")


def _say(message: object) -> None:
    sys.stderr.write(f"s3unzip: {printable(str(message))}\n")
