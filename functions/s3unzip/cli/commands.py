"""Make commands of click from functions of `Arguments`.

`command` decorates a function and names the parameters of the command::

    @command("src names", MEMBER_OPTIONS, ODD, SOURCE_OPTIONS, "json")
    def ls(arguments: Arguments) -> int: ...
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import click

from s3unzip.cli.arguments import Arguments, Declaration, complete_from
from s3unzip.errors import UsageError
from s3unzip.local import process_setup
from s3unzip.model import Options
from s3unzip.object_properties import ObjectProperties
from s3unzip.options import HelpSection, OptionRow, read_options
from s3unzip.stores.config import StoreConfig

LEVELS = ("error", "warning", "info", "debug")


def _declare(row: OptionRow) -> Declaration:
    """Return click's declaration of an option of a run."""
    settings: dict[str, Any] = {"envvar": row.option.variable}
    if row.option.known_values:
        settings["shell_complete"] = complete_from(row.option.known_values)
    form = row.option.form
    default = row.default
    if row.choices:
        form = f"{form} <{'|'.join(row.choices)}>"
        default = row.default and row.default.value  # click gets the text of the enum member
    elif row.is_mapping:
        default = ()  # repeatable: each value is one pair
    elif row.kind is int:
        settings["type"] = click.IntRange(min=row.option.minimum)
    elif row.kind is str:
        default = None  # not typed: the class that declares the option has the default
    return Declaration(
        form, row.option.help, default, section=row.option.section, settings=settings
    )


def _declarations() -> Iterator[tuple[str, Declaration]]:
    for name, field in Arguments.__dataclass_fields__.items():
        if "declaration" in field.metadata:
            yield name, field.metadata["declaration"]
    for kind in (Options, ObjectProperties, StoreConfig):
        for row in read_options(kind):
            if row.word:
                yield row.parameter, _declare(row)


DECLARATIONS = dict(_declarations())


def _names_in(section: HelpSection) -> str:
    return " ".join(
        name for name, declaration in DECLARATIONS.items() if declaration.section is section
    )


# Names of parameters that several commands have, separated by spaces.
MEMBER_OPTIONS = _names_in(HelpSection.MEMBERS)
WHERE = _names_in(HelpSection.KEYS)
LOOK = _names_in(HelpSection.OBJECTS)
ODD = _names_in(HelpSection.ODD)
AFTERWARDS = _names_in(HelpSection.AFTERWARDS)
SERVER = "endpoint_url region profile"
SOURCE_OPTIONS = f"{SERVER} addressing_style allow no_sign_request request_payer"
PLACES = f"{SOURCE_OPTIONS} dest_endpoint_url dest_profile"


class _GroupedCommand(click.Command):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse arguments; each error gets the context, so that its message names the command."""
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            error.ctx = error.ctx or ctx
            raise

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        options = [param for param in self.get_params(ctx) if isinstance(param, click.Option)]
        sections = {name: declaration.section for name, declaration in DECLARATIONS.items()}
        for section in (*HelpSection, None):  # None: options without a section, and --help
            records = [
                option.get_help_record(ctx)
                for option in options
                if sections.get(option.name or "") is section
            ]
            if records:
                with formatter.section(section or "Options"):
                    formatter.write_dl(list(filter(None, records)))


def command(
    *names: str, **changes: dict[str, Any]
) -> Callable[[Callable[[Arguments], int]], click.Command]:
    """Return a decorator that makes a command of a function, with its docstring as the help.

    Args:
        names: the command's parameters; each text may have several names, separated by spaces.
        changes: settings of click for single parameters, which replace the declared ones.
    """

    def make(function: Callable[[Arguments], int]) -> click.Command:
        def start(**values: Any) -> int:
            fields = values.keys() & Arguments.__dataclass_fields__.keys()
            run_options = {name: values[name] for name in values.keys() - fields}
            arguments = Arguments(run_options, **{name: values[name] for name in fields})
            _start_logging(arguments.verbose)
            return function(arguments)

        return _GroupedCommand(
            function.__name__,
            params=[
                _make_parameter(name, changes.get(name, {}))
                for name in " ".join((*names, "verbose")).split()
            ],
            callback=start,
            help=function.__doc__,
            context_settings={"help_option_names": ["-h", "--help"]},
        )

    return make


def _make_parameter(name: str, changes: dict[str, Any]) -> click.Parameter:
    """Return an option or an argument of click; `changes` replace its declared settings."""
    declaration = DECLARATIONS[name]
    form = declaration.form.split()
    names = [word for word in form if word.startswith("-")]
    metavar = next((word for word in form if word not in names), None)
    default = declaration.default
    settings = {"help": declaration.help, "metavar": metavar, **declaration.settings}
    if metavar is not None and metavar.startswith("<"):
        settings["type"] = click.Choice(metavar.strip("<>").split("|"))
    if names:
        settings |= {"default": default, "show_envvar": True, "show_default": bool(default)}
        settings |= {"is_flag": default is False, "multiple": default == ()}
    elif default == ():
        settings["nargs"] = -1  # any number of values
    elif default is not None:
        settings |= {"default": default, "required": False}
    settings |= changes
    if settings.get("required"):
        settings.pop("default", None)  # click would use it and require nothing
    if names:
        return click.Option([name, *names], **settings)
    return click.Argument([name], **settings)


def _start_logging(verbose: int) -> None:
    """Log at the level of -v or of `LOG_LEVEL`; worker processes inherit the variable."""
    if verbose:
        os.environ[process_setup.LOG_LEVEL] = "info" if verbose == 1 else "debug"
    level = os.environ.get(process_setup.LOG_LEVEL)
    if level and level.lower() not in LEVELS:
        raise UsageError(f"{process_setup.LOG_LEVEL}={level}: is not one of {', '.join(LEVELS)}")
    process_setup.start_logging()
