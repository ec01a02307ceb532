"""What a command says besides its result: log level and colours, the same for every command."""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

import typer

from s3unzip.local.logs import LOG_LEVEL, start_logging


class LogLevel(StrEnum):
    """From which level on messages are logged to standard error."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"
    DEBUG = "debug"


class ColorMode(StrEnum):
    """When output is coloured."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


@dataclass(frozen=True)
class OptionGroup:
    """A dataclass whose fields are options; see `s3unzip.cli.options.groups`."""


@dataclass(frozen=True)
class Messages(OptionGroup):
    """Options of every command."""

    verbose: Annotated[
        int,
        typer.Option(
            "--verbose",
            "-v",
            count=True,
            show_default=False,
            help="Log retries and decisions to stderr; -vv: every request to a store.",
        ),
    ] = 0
    log_level: Annotated[
        LogLevel | None,
        typer.Option("--log-level", envvar=LOG_LEVEL, help="Log from this level on to stderr."),
    ] = None
    color: Annotated[
        ColorMode,
        typer.Option(
            "--color", help="Colours and live progress: auto uses both on a terminal only."
        ),
    ] = ColorMode.AUTO

    def apply(self) -> None:
        """Make this process, and the workers that it starts, follow the options."""
        if self.color is ColorMode.NEVER:
            os.environ["NO_COLOR"] = "1"
            os.environ.pop("FORCE_COLOR", None)
        elif self.color is ColorMode.ALWAYS:
            os.environ.pop("NO_COLOR", None)
            os.environ["FORCE_COLOR"] = "1"
        level = self.log_level
        if self.verbose:
            level = LogLevel.INFO if self.verbose == 1 else LogLevel.DEBUG
        if level is not None:
            os.environ[LOG_LEVEL] = level.value
            start_logging()
