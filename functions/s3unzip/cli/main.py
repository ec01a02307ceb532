"""``s3unzip``: the commands, and how they end."""

from __future__ import annotations

import os
import sys
import traceback
from typing import TYPE_CHECKING, NoReturn

import typer
from typer.exceptions import TyperException

from s3unzip.cli.commands import archive, doctor, operate, reconcile, run, verify, watch
from s3unzip.cli.figures import printable
from s3unzip.errors import S3UnzipError

if TYPE_CHECKING:
    from collections.abc import Sequence

INTERNAL_ERROR = 70  # EX_SOFTWARE of sysexits.h

app = typer.Typer(
    name="s3unzip",
    help="Extract ZIP archives of any size from S3 to S3, in parallel, verified.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
for commands in (run, verify, archive, watch, operate, reconcile, doctor):
    commands.register(app)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command and exit with its code: errors are one line, never a traceback.

    Args:
        arguments: of the command line; None: the process's.
    """
    try:
        code = app(args=arguments, standalone_mode=False)
    except S3UnzipError as error:
        _say(error)
        sys.exit(error.exit_code)
    except TyperException as error:
        _say(f"{error.format_message()} (see --help)")
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(130)
    except BrokenPipeError:  # `s3unzip ls ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except Exception as error:  # noqa: BLE001 - the command line's outermost edge
        if os.environ.get("S3UNZIP_DEBUG"):
            traceback.print_exc()
        _say(f"internal error, please report it: {type(error).__name__}: {error}")
        sys.exit(INTERNAL_ERROR)
    sys.exit(code if isinstance(code, int) else 0)


def _say(message: object) -> None:
    sys.stderr.write(f"s3unzip: {printable(str(message))}\n")
